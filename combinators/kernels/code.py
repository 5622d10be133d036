"""What the code of a function reads: globals, attributes by name, variables around it; and whose code that is."""

from __future__ import annotations

import collections
import dis
import functools
import sys
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import cast


def loaded_globals(code: CodeType) -> list[str]:
    """List the global names that a code object and the code objects nested in it read, in a fixed order.

    Args:
      code: the code of a function.

    Returns:
      The names, sorted; names of attributes and of local variables are not among them, nor those that nobody can write:
      pytest puts itself under such ones into functions with an `assert`.
    """
    return list(_globals_of(code))


@functools.lru_cache(maxsize=4096)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    names = {str(item.argval) for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            names.update(_globals_of(nested))
    return tuple(sorted(filter(str.isidentifier, names)))


@functools.lru_cache(maxsize=16_384)
def attribute_names(code: CodeType) -> frozenset[str]:
    """The names of attributes in a function's code, and the texts by which it may look some up.

    Args:
      code: the code of a function; what is nested in it counts, too.
    """
    names = {str(item.argval) for item in dis.get_instructions(code) if item.opname in _ATTRIBUTES}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= attribute_names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
    return frozenset(names)


_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM", "LOAD_NAME"})


def names_near(outer: tuple[object, ...]) -> frozenset[str]:
    """The names by which functions around a value, and those that these can call, read attributes of anything.

    Args:
      outer: what the value is a part of.
    """
    names, waiting, seen = set[str](), [each for value in outer for each in _called_of(value)], set[CodeType]()
    while waiting:
        function = waiting.pop()
        if function.__code__ in seen or is_library_function(function):
            continue
        seen.add(function.__code__)
        names |= attribute_names(function.__code__)
        near = [function.__globals__.get(name) for name in loaded_globals(function.__code__)]
        near += [cell.cell_contents for cell in function.__closure__ or () if not is_empty(cell)]
        waiting += [each for each in near if isinstance(each, FunctionType)]
    return frozenset(names)


def _called_of(value: object) -> list[FunctionType]:
    """The functions that a value runs where it is called."""
    if isinstance(value, functools.partial):
        partial = cast("functools.partial[object]", value)
        return [*_called_of(partial.func), *(each for part in partial.args for each in _called_of(part))]
    value = getattr(value, "__func__", getattr(value, "__wrapped__", value))
    if isinstance(value, FunctionType):
        return [value]
    cls = value if isinstance(value, type) else type(value)
    methods = () if is_array_library(cls.__module__) or cls.__module__ == "builtins" else vars(cls).values()
    return [each for each in methods if isinstance(each, FunctionType)]


def is_empty(cell: CellType) -> bool:
    """Whether a variable of an enclosing function is not bound yet."""
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return True
    return False


def written_onto(own: Mapping[str, object]) -> list[str]:
    """Of the attributes of a function those that are somebody's, and not Python's, JAX's or this library's."""
    jitted = {"_fun", "_jit_info"} & own.keys()
    marks = {name for name in jitted if callable(own[name]) or is_array_library(type(own[name]).__module__)}
    return sorted(own.keys() - _MARKS - marks)


def attributes(value: object) -> dict[str, object]:
    """All attributes of an object, in its dictionary and in slots, whatever its class tells whoever copies it."""
    state = object.__getstate__(value)
    found: dict[str, object] = {}
    for own in state if isinstance(state, tuple) else (state,):
        found |= cast("dict[str, object]", own or {})
    return found


def held_beside(value: object) -> dict[str, object]:
    """What an object of somebody's class holds beside its items, or its fields: attributes that were written onto it.

    What a property keeps there follows from the rest.

    Args:
      value: a container, or a dataclass.
    """
    cls = type(value)
    if cls.__module__.partition(".")[0] in _OTHERS | {"builtins"}:
        return {}
    found = attributes(value)
    if isinstance(value, collections.defaultdict):
        found["default_factory"] = cast("collections.defaultdict[object, object]", value).default_factory
    written = [item for base in cls.__mro__ for item in vars(base).items()]
    kept = {name for name, each in written if isinstance(each, functools.cached_property)}
    fields = getattr(cls, "__dataclass_fields__", {})
    return {name: found[name] for name in sorted(found.keys() - fields.keys() - kept - _MARKS)}


_MARK_NAMES = "__annotations__ __doc__ __module__ __name__ __qualname__ __signature__ __wrapped__ _tapestry_settled"
_MARKS = frozenset(_MARK_NAMES.split())
"""What Python, JAX and this library write onto functions."""


def is_library_function(fn: FunctionType) -> bool:
    """Tell whether a function is written in JAX or NumPy, whose modules are not looked into.

    Args:
      fn: a Python function, such as the wrapper that `jax.grad` returns.

    Returns:
      True where the globals that the function reads are those of a module of jax or numpy.
    """
    return is_array_library(str(fn.__globals__.get("__name__")))


def is_users(module: ModuleType) -> bool:
    """Whether a module is neither Python's, nor one of JAX, NumPy, SciPy or this library."""
    return module.__name__.partition(".")[0] not in _OTHERS | sys.stdlib_module_names


_OTHERS = frozenset({"jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "combinators", "tapestry_jax"})


def is_array_library(module: str) -> bool:
    """Tell whether a module is one of JAX or NumPy."""
    return module.partition(".")[0] in ("jax", "jaxlib", "numpy")
