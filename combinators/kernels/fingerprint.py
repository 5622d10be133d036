"""Fingerprints of kernels: a structural text that is equal where two kernels are, in this process and in the next.

Graphs use it in their keys, so it must never be equal for kernels that compute different things, and it never holds
what Python makes anew in each process: no `hash`, no `id`, no address, no line number.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import custom_batching

from combinators.errors import KernelError, message
from combinators.kernels.code import (
    held_beside,
    is_array_library,
    is_empty,
    is_library_function,
    is_users,
    loaded_globals,
    names_near,
    written_onto,
)
from combinators.kernels.names import public_name


def fingerprint(fn: object) -> str:
    """Describe a kernel, or a plain value that one holds, by a stable text.

    Importable callables are described by their public name; partials and objects by their parts; lambdas and local
    functions by their qualified name, the SHA-256 of their code (its instructions, constants and names, those of nested
    functions too), their defaults, what their closure cells and the globals that they read hold, and what was written
    onto them. Of a module counts what the code around it reads of it by name.

    Args:
      fn: the kernel.

    Returns:
      A text that is equal for kernels of equal structure only. The text of a lambda depends on the version of Python.

    Raises:
      KernelError: when something inside has no structure to describe: a traced array, an open file.
    """
    before = _DESCRIBED.set({})
    try:
        return _text(fn, ())
    finally:
        _DESCRIBED.reset(before)


_DESCRIBED: ContextVar[dict[object, object]] = ContextVar("described")
"""Whose attributes a description has told so far. Once is enough, and functions may hold each other by theirs."""


def _is_told(value: object, *how: object) -> bool:
    """Whether a description has come by a value before, seen in this way; it is noted."""
    described = _DESCRIBED.get({})
    told = (id(value), *how) in described
    # Held, so that nothing that is made later has its identity.
    described[id(value), *how] = value
    return told


def is_traced(array: jax.Array | np.ndarray[Any, Any]) -> bool:
    """Tell whether an array stands for a value that is not known yet.

    Args:
      array: an array of JAX or of NumPy.

    Returns:
      True inside `jit`, `grad`, `vmap` and the like.
    """
    if isinstance(array, np.ndarray):
        return False
    known = _TRACED.get(type(array))
    if known is None:
        known = _TRACED[type(array)] = _is_nowhere(array)
    return known


# Of one class all are, or none. To ask one that is traced is an error, for whose text JAX walks through all that was
# traced so far: of 1,543 arguments that takes a second.
_TRACED: dict[type, bool] = {}


def _is_nowhere(array: jax.Array) -> bool:
    try:
        array.is_deleted()  # only an array that exists can be
    except (AttributeError, jax.errors.ConcretizationTypeError):
        return True
    return False


def rules(value: object) -> dict[str, Callable[..., Any]]:
    """The function and the rules that an object of `jax.custom_jvp`, `jax.custom_vjp` or `custom_vmap` calls.

    Args:
      value: anything.

    Returns:
      Attribute to function: `fun`, and `jvp`, `fwd`, `bwd` or `vmap_rule`; empty for what has no such rules.
    """
    if not isinstance(value, (jax.custom_jvp, jax.custom_vjp, custom_batching.custom_vmap)):
        return {}
    own: dict[str, Any] = vars(value)
    return {name: own[name] for name in ("fun", "jvp", "fwd", "bwd", "vmap_rule") if callable(own.get(name))}


def _text(value: object, outer: tuple[object, ...]) -> str:
    """Describe any value; `outer` are the values that it is a part of, the outermost first."""
    if isinstance(value, ModuleType):
        return _module(value, outer)
    # Of a class that no import gives: others may be called so.
    own_enum = isinstance(value, enum.Enum) and public_name(type(value)) is None
    plain = None if own_enum else plain_text(value)
    if plain is not None:
        return plain
    for depth, other in enumerate(outer):
        if other is value:  # a recursive function is in its own closure
            return f"outer({depth})"
    inner = (*outer, value)
    if isinstance(value, enum.Enum):
        return _call(f"enum({type(value).__qualname__}.{value.name})", inner, {"value": value.value})
    if isinstance(value, (tuple, list, set, frozenset, dict)):
        return _container(cast("Collection[object]", value), inner)
    if (public := public_name(value)) is not None:
        return f"name({public})"
    if isinstance(value, type):
        return _local_class(value, inner)
    if isinstance(value, functools.partial):
        partial = cast("functools.partial[object]", value)
        parts: dict[str, object] = {"function": partial.func, "arguments": partial.args, "keywords": partial.keywords}
        return _call("partial", inner, parts) + _attributes(value, inner)
    if isinstance(value, FunctionType):
        return _function(value, inner)
    if isinstance(value, MethodType):
        return _call("method", inner, {"function": value.__func__, "self": value.__self__})
    if isinstance(value, BuiltinFunctionType):
        return _call(f"builtin({value.__qualname__})", inner, {"self": value.__self__})
    return _object(value, inner)


def plain_text(value: object) -> str | None:
    """Describe a value without parts. The type is told: 1, 1.0 and True differ. Modules and enums by their names.

    Args:
      value: anything.

    Returns:
      A text; None for what has parts.

    Raises:
      KernelError: for a traced array, and one of Python objects.
    """
    if isinstance(value, ModuleType):
        return f"module({value.__name__})"
    if isinstance(value, enum.Enum):
        return f"enum({type(value).__module__}:{type(value).__qualname__}.{value.name})"
    if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes, range):
        return repr(value)
    if type(value) is float:
        return f"float({value.hex()})"
    if type(value) is complex:
        return f"complex({value.real.hex()},{value.imag.hex()})"
    if isinstance(value, np.dtype):
        return f"dtype({value}{'' if value.metadata is None else _text(dict(value.metadata), ())})"
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return _array(value)
    return None


def _array(value: Any) -> str:
    """Describe an array or a NumPy scalar by its dtype, its shape and the SHA-256 of its content."""
    if isinstance(value, jax.Array):
        if is_traced(value):
            raise _no_fingerprint(value, "a traced array has no content yet")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return f"key({value.dtype},{_array(jax.random.key_data(value))})"
    host = np.asarray(value)
    if host.dtype.hasobject:
        raise _no_fingerprint(value, "it is an array of Python objects")
    kind = "scalar" if isinstance(value, np.generic) else "array"
    return f"{kind}({host.dtype},{host.shape},{hashlib.sha256(host.tobytes()).hexdigest()})"


def _module(module: ModuleType, outer: tuple[object, ...]) -> str:
    """Describe a module by its name, and by what the code around it reads of it.

    Two modules may have one name: those that a loader made of two files. What an import gives is told by the name, and
    so is all that JAX, NumPy and Python hold.
    """
    plain = f"module({module.__name__})"
    if not is_users(module) or any(module is other for other in outer):
        return plain
    found, near = vars(module), names_near(outer)
    if _is_told(module, near):
        return plain
    own = f"{module.__name__}:"
    read = [name for name in sorted(near & found.keys()) if public_name(found[name]) != own + name]
    return f"{plain}[{','.join(f'{name}={_told(found[name], (*outer, module))}' for name in read)}]" if read else plain


def _told(value: object, inner: tuple[object, ...]) -> str:
    """Describe what a kernel may read: a logger or a mesh, which has no structure to describe, by its class."""
    try:
        return _text(value, inner)
    except KernelError:
        return f"some({_text(type(value), inner)})"


def _attributes(value: object, inner: tuple[object, ...]) -> str:
    """Describe what somebody wrote onto a function, as decorators and registries do."""
    own = vars(value)
    names = written_onto(own)
    if not names or _is_told(value):
        return ""
    texts = [f"{name}={_told(own[name], inner)}" for name in names]
    return f"[{','.join(texts)}]"


def _container(value: Collection[object], inner: tuple[object, ...]) -> str:
    """Describe a tuple, a list, a set or a dict, and what is in it."""
    kind = type(value).__name__ if type(value).__module__ == "builtins" else _text(type(value), inner)
    if isinstance(value, dict):
        texts = [f"{_text(key, inner)}:{_text(part, inner)}" for key, part in value.items()]
    else:
        texts = [_text(item, inner) for item in value]
    more = _beside(value, inner)
    # The order of a dict is kept: JAX flattens by sorted keys, but a kernel may iterate.
    return f"{kind}({','.join([*(sorted(texts) if isinstance(value, (set, frozenset)) else texts), *more])})"


def _beside(value: object, inner: tuple[object, ...]) -> list[str]:
    """Describe what an object holds beside its items or fields: a cache or a lock by its class."""
    return [f"{name}={_told(part, inner)}" for name, part in held_beside(value).items()]


def _function(fn: FunctionType, inner: tuple[object, ...]) -> str:
    """Describe a Python function that no import gives."""
    held = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    cells = {name: cell.cell_contents for name, cell in held if not is_empty(cell)}
    digest = hashlib.sha256(code_text(fn.__code__).encode()).hexdigest()
    texts = [f"{name}={_text(cell, inner)}" for name, cell in cells.items()]
    if not is_library_function(fn):
        texts += [f"{name}={text}" for name, text in _globals(fn, inner)]
    head = f"function({fn.__qualname__},{digest},{','.join(texts)})"
    defaults = _call(head, inner, {"defaults": fn.__defaults__, "keywords": fn.__kwdefaults__})
    return defaults + _attributes(fn, inner)


def _globals(fn: FunctionType, inner: tuple[object, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each global that a function reads."""
    for name in loaded_globals(fn.__code__):
        if name in fn.__globals__:
            yield name, _told(fn.__globals__[name], inner)


def code_text(code: CodeType) -> str:
    """Describe a code object by what it does: no file name and no line numbers.

    Args:
      code: of a function.
    """
    constants = [code_text(item) if isinstance(item, CodeType) else _text(item, ()) for item in code.co_consts]
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"code({code.co_code.hex()},{arguments},{names},[{','.join(constants)}])"


def _object(value: object, inner: tuple[object, ...]) -> str:
    """Describe an object by its class and its fields."""
    head = f"object({_text(type(value), inner)})"
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        beside = _beside(value, inner)
        return _call(head, inner, fields) + (f"[{','.join(beside)}]" if beside else "")
    if rules(value):
        # The function, its rules and their options; the private rest is what functools.wraps copied.
        names = [name for name in vars(value) if not name.startswith("_")]
    elif callable(getattr(value, "__wrapped__", None)):
        # The result of jax.jit is opaque but shows the function that it compiles.
        names = ["__wrapped__", *written_onto(vars(value))]
    else:
        return _call(head, inner, {"state": _state(value)})
    return _call(head, inner, {name: getattr(value, name, None) for name in names})


def _state(value: object) -> tuple[object, ...]:
    """Take an object apart as copying does: nothing that makes it differ from another is left out."""
    try:
        parts = value.__reduce_ex__(2)
    except Exception as error:  # whatever its class raises, the object does not come apart
        raise _no_fingerprint(value, str(error) or type(error).__name__) from error
    if isinstance(parts, str):
        return (parts,)
    state, items, pairs = (*parts[1:], None, None, None, None)[1:4]
    return (parts[1], state, list(items or ()), list(pairs or ()))


def _call(head: str, inner: tuple[object, ...], parts: Mapping[str, object]) -> str:
    """Join the description of a value with those of its parts."""
    return f"{head}({','.join(f'{name}={_text(part, inner)}' for name, part in parts.items())})"


def _local_class(cls: type, inner: tuple[object, ...]) -> str:
    """Describe a class that no import gives by its bases, its methods and its plain attributes."""
    if is_array_library(cls.__module__):
        return f"class({cls.__module__}:{cls.__qualname__})"
    texts = [_text(base, inner) for base in cls.__bases__]
    for name, attribute in sorted(vars(cls).items()):
        own = attribute.func if isinstance(attribute, functools.cached_property) else attribute
        method = getattr(own, "__func__", getattr(own, "fget", own))
        # What the dataclass decorator writes follows from the fields.
        is_written = isinstance(method, FunctionType) and method.__code__.co_filename == "<string>" and name in _WRITES
        if isinstance(method, FunctionType) and not is_written:
            texts.append(f"{name}={_text(method, inner)}")
        elif not name.startswith("__") and name not in _MADE:
            texts.append(f"{name}={_told(attribute, inner)}")
    return f"class({cls.__qualname__},{','.join(texts)})"


_WRITES_NAMES = "__init__ __new__ __repr__ __eq__ __lt__ __le__ __gt__ __ge__ __hash__ __setattr__ __delattr__"
_WRITES = frozenset(_WRITES_NAMES.split())
"""What decorators of the standard library write as methods."""
_MADE = frozenset({"_abc_impl", "_member_map_", "_member_names_", "_value2member_map_", "_unhashable_values_"})
"""What Python writes into classes."""


def _no_fingerprint(value: object, reason: str) -> KernelError:
    """Build the error for a value that has no structure to describe."""
    headline = f"a kernel holds a {type(value).__name__}, by which it cannot be told from other kernels."
    return KernelError(message(headline, reason, remedy="Pass it as an operand, or keep it in a frozen dataclass."))
