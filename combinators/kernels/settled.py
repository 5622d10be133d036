"""Kernels that stay what they were when their leaf was made, and what of a kernel can still change.

Python looks up a variable of an enclosing function when a function runs: of the three leaves that
`for i in range(3): x = tp.Map(lambda a: a + i)(x)` makes, all would add 2 once the loop is over, in a plan that runs
later and in every call that takes an equal leaf of an earlier one for its own. So a leaf takes the variables with
their values. A function that writes such variables, to count its calls, is left as it is.

What lies in a list or on an object may change all the same, and so may variables of a module, which may be loaded
again. Kernels that read the same such object, or are the same function of a module, are equal where their fingerprints
are; others are not, since what they read or do need not stay alike. Before a program runs later than it was traced,
those that `may_change` are looked at again (`combinators.graphs.unchanged`).
"""

from __future__ import annotations

import dataclasses
import dis
import functools
from collections.abc import Iterable, Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import jax

from combinators.kernels.code import (
    attribute_names,
    attributes,
    held_beside,
    is_empty,
    is_library_function,
    is_users,
    loaded_globals,
    written_onto,
)
from combinators.kernels.fingerprint import rules
from combinators.kernels.names import public_name
from combinators.kernels.reachable import is_library

_JITTED = type(jax.jit(lambda: None))
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_BUILT_IN = (tuple, list, dict, set, frozenset, str, bytes, int, float, complex)
_SETTLED = "_tapestry_settled"
"""Marks a function whose variables nobody else can write, and a copy of one with rules of its own."""


def settled(value: Any) -> Any:
    """A kernel that reads the variables of its enclosing functions as they are now.

    Args:
      value: a function, or a partial, a tuple or a frozen dataclass that holds functions, or one that JAX gave rules
        of its own (`jax.custom_jvp`, `jax.custom_vjp`, `custom_vmap`); anything else is itself.

    Returns:
      The value itself where nothing in it has variables of enclosing functions.
    """
    return _settled(value, {})


def _settled(value: Any, made: dict[int, Any]) -> Any:
    if type(value) in _PLAIN:
        return value
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, FunctionType):
        return _function(value, made)
    if type(value) is functools.partial:
        return _partial(cast("functools.partial[Any]", value), made)
    if type(value) is tuple:
        parts = tuple(_settled(part, made) for part in value)
        return parts if _differ(parts, value) else value
    if _is_jitted(value):
        # Inside of a program that is compiled as a whole, what is jitted by itself is what it wraps.
        kept = _settled(value.__wrapped__, made)
        return value if kept is value.__wrapped__ else kept
    if rules(value):
        return _with_rules(value, made)
    if _is_frozen(value):
        return _dataclass(value, made)
    return value


def _with_rules(value: Any, made: dict[int, Any]) -> Any:
    """A copy of a function with rules of its own; a rule may call the function."""
    own = tuple(rules(value).values())
    # Of a copy there is no other copy: a monoid is settled, and then what merges by it. (The mark may be the function's
    # own, which JAX copies from what it wraps.)
    marked = vars(value).get(_SETTLED)
    is_copy = isinstance(marked, tuple) and len(own) == len(marked) and not _differ(own, marked)
    if public_name(value) is not None or is_copy:
        return value
    new: Any = object.__new__(cast("Any", type(value)))
    made[id(value)] = new
    parts = {name: _settled(part, made) for name, part in rules(value).items()}
    vars(new).update(vars(value) | parts | {_SETTLED: tuple(parts.values())}, __wrapped__=parts["fun"])
    return new


def _is_jitted(value: Any) -> bool:
    return type(value) is _JITTED and public_name(value) is None


def _is_frozen(value: Any) -> bool:
    parameters = getattr(cast("object", type(value)), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _dataclass(value: Any, made: dict[int, Any]) -> Any:
    beside = held_beside(value)
    parts = {name: getattr(value, name) for name in _given(type(value))} | beside
    settled = {name: _settled(part, made) for name, part in parts.items()}
    changed = {name: new for name, new in settled.items() if new is not parts[name]}
    if not changed:
        return value
    if (not beside and not _is_begun_by_more(type(value))) or isinstance(value, _BUILT_IN):
        return dataclasses.replace(cast("Any", value), **changed)
    # Its constructor would need what it was begun with, and gives nothing of what was written onto it afterwards; and
    # its class may say of a copy that it is the object itself, which is somebody's.
    new = object.__new__(cast("type[Any]", type(value)))
    for name, part in (attributes(value) | changed).items():
        object.__setattr__(new, name, part)
    return new


@functools.lru_cache(maxsize=1024)
def _is_begun_by_more(cls: type[Any]) -> bool:
    """Whether the constructor of a dataclass takes more than its fields (`dataclasses.InitVar`)."""
    return len(cls.__dataclass_fields__) > len(dataclasses.fields(cls))


@functools.lru_cache(maxsize=1024)
def _given(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass that its constructor takes; asked for at every operation that is made."""
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def _function(fn: FunctionType, made: dict[int, Any]) -> FunctionType:
    defaults, keywords = fn.__defaults__ or (), fn.__kwdefaults__ or {}
    if not (fn.__closure__ or defaults or keywords) or _is_settled(fn) or public_name(fn) is not None:
        return fn
    if _writes(fn.__code__) and not is_library_function(fn):
        return fn
    try:
        values = [cell.cell_contents for cell in fn.__closure__ or ()]
    except ValueError:  # one is not bound yet: what will be is read when it is there
        return fn
    cells = tuple(CellType() for _ in values)
    new = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    # A function may stand in its own variables.
    made[id(fn)] = new
    parts = [*values, *defaults, *keywords.values()]
    kept = [_settled(part, made) for part in parts]
    if (is_library_function(fn) or not cells) and not _differ(kept, parts):  # `jax.vmap` of one without variables
        made[id(fn)] = fn
        return fn
    for cell, value in zip(cells, kept, strict=False):
        cell.cell_contents = value
    rest = kept[len(cells) :]
    new.__defaults__ = tuple(rest[: len(defaults)]) if defaults else fn.__defaults__
    new.__kwdefaults__ = dict(zip(keywords, rest[len(defaults) :], strict=True)) if keywords else fn.__kwdefaults__
    new.__qualname__, new.__module__ = fn.__qualname__, fn.__module__
    new.__doc__, new.__annotations__ = fn.__doc__, fn.__annotations__
    vars(new).update({name: _settled(part, made) for name, part in vars(fn).items()} | {_SETTLED: fn.__code__})
    return new


def _is_settled(fn: FunctionType) -> bool:
    # `functools.wraps` hands the mark on to functions with variables of their own.
    return vars(fn).get(_SETTLED) is fn.__code__


@functools.lru_cache(maxsize=4096)
def _writes(code: CodeType) -> bool:
    """Whether a function, or one inside of it, writes variables of those around it: it counts its calls, say."""
    stores = (each for each in dis.get_instructions(code) if each.opname in ("STORE_DEREF", "DELETE_DEREF"))
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return any(each.argval in code.co_freevars for each in stores) or any(map(_writes, inner))


def _partial(value: functools.partial[Any], made: dict[int, Any]) -> Any:
    function = _settled(value.func, made)
    args = tuple(_settled(each, made) for each in value.args)
    keywords = {name: _settled(each, made) for name, each in value.keywords.items()}
    parts, others = (function, *args, *keywords.values()), (value.func, *value.args, *value.keywords.values())
    return functools.partial(function, *args, **keywords) if _differ(parts, others) else value


def _differ(parts: Any, others: Any) -> bool:
    return any(part is not other for part, other in zip(parts, others, strict=True))


def changeable(*values: Any) -> tuple[int, ...]:
    """What kernels read that others can change: variables, lists, objects, and what a module calls by a name.

    Args:
      values: kernels, and whatever else belongs to a leaf.

    Returns:
      The identities, in an order that follows from the values.
    """
    found = dict[int, None]()
    seen = dict[int, Any]()
    for value in values:
        found.update((id(each), None) for each in _changeable(value, seen))
    return tuple(found)


def may_change(*values: Any) -> bool:
    """Whether kernels read anything by which they can come to compute something else.

    Args:
      values: kernels, and whatever else belongs to a leaf.
    """
    seen = dict[int, Any]()
    found = [each for value in values for each in _changeable(value, seen)]
    return any(public_name(each) is None for each in found) or any(True for _ in _read((*found, *seen.values())))


def read_by_name(*values: Any) -> tuple[Any, ...]:
    """The variables and attributes that functions and classes read, fingerprints of which tell names alone, in part.

    Args:
      values: kernels, and whatever else belongs to a leaf.
    """
    seen = dict[int, Any]()
    found = [each for value in values for each in _changeable(value, seen)]
    return tuple(_read((*found, *seen.values())))


def _read(values: Iterable[Any]) -> Iterator[Any]:
    seen = dict[Any, Any]()
    for value in values:
        yield from _variables(value, seen)


def _variables(value: Any, seen: dict[Any, Any]) -> Iterator[Any]:
    """What a user's function, or methods of a user's class, read of modules and functions: none of these themselves."""
    if id(value) in seen:
        return
    if isinstance(value, type):
        seen[id(value)] = value
        for part in vars(value).values():
            yield from _variables(getattr(part, "__func__", getattr(part, "fget", part)), seen)
    elif isinstance(value, FunctionType) and not is_library(value.__module__):
        seen[id(value)] = value
        names = attribute_names(value.__code__)
        held = [value.__globals__[name] for name in loaded_globals(value.__code__) if name in value.__globals__]
        cells = [cell.cell_contents for cell in value.__closure__ or () if not is_empty(cell)]
        held += [each for each in cells if isinstance(each, ModuleType)]
        held += [vars(value)[name] for name in written_onto(vars(value))]
        for each in held:
            yield from _variable(each, names, seen)


def _variable(each: Any, names: frozenset[str], seen: dict[Any, Any]) -> Iterator[Any]:
    """What a function that reads attributes of these names reads of what it holds."""
    if isinstance(each, FunctionType):
        yield from _variables(each, seen)
    elif isinstance(each, ModuleType):
        if is_users(each) and (id(each), names) not in seen:
            seen[id(each), names] = each
            for name in sorted(names & vars(each).keys()):
                yield from _variable(vars(each)[name], names, seen)
    elif not isinstance(each, type) and public_name(each) is None:
        yield each


def _changeable(value: Any, seen: dict[int, Any], *, read: bool = False) -> Iterator[Any]:
    """`read`: whether a function of the user's reads the value; what this library holds it does not change."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, type):
        if read and public_name(value) is None and not is_library(value.__module__):
            yield value
        return
    if _is_reloadable(value) or (isinstance(value, ModuleType) and is_users(value)):
        yield value
        return
    if isinstance(value, FunctionType):
        written = [vars(value)[name] for name in written_onto(vars(value))]
        for each in (*written, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            yield from _changeable(each, seen, read=True)
        own = _is_settled(value) or is_library_function(value)
        for cell in value.__closure__ or ():
            if not own:
                yield cell
            try:
                yield from _changeable(cell.cell_contents, seen, read=True)
            except ValueError:
                continue
    elif isinstance(value, MethodType):
        yield from _changeable(value.__self__, seen, read=True)
        yield from _changeable(value.__func__, seen)
    elif type(value) is functools.partial:
        partial = cast("functools.partial[Any]", value)
        if vars(partial):
            yield value
        for each in (partial.func, *partial.args, *partial.keywords.values()):
            yield from _changeable(each, seen, read=read)
    elif isinstance(value, (list, dict, set, bytearray, tuple, frozenset)):
        beside = held_beside(value)
        if beside or (read and not isinstance(value, (tuple, frozenset))):
            yield value
        if beside:
            yield type(value)
        for each in beside.values():
            yield from _changeable(each, seen, read=True)
        for each in cast("Any", value.values() if isinstance(value, dict) else value):
            yield from _changeable(each, seen, read=read)
    elif rules(value):
        for each in rules(value).values():
            yield from _changeable(each, seen)
    elif callable(getattr(value, "__wrapped__", None)):
        yield from _changeable(value.__wrapped__, seen)
    elif dataclasses.is_dataclass(value):
        if not _is_frozen(value):
            yield value
        for each in held_beside(value).values():
            yield from _changeable(each, seen, read=True)
        if not is_library(type(value).__module__):
            yield type(value)
        for field in dataclasses.fields(value):
            yield from _changeable(getattr(value, field.name, None), seen, read=read)
    elif type(value).__module__ != "builtins" and not is_library(type(value).__module__):
        yield value
        yield type(value)


def _is_reloadable(value: Any) -> bool:
    """Whether it is a user's and has a name: a module that is loaded again has another one of that name."""
    return callable(value) and not is_library(getattr(value, "__module__", None)) and public_name(value) is not None
