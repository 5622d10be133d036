"""Kernels: which functions may be one, when two are the same, and what a path calls them.

A kernel is an ordinary JAX function from operand blocks to result blocks. It may hold numbers, names and other
functions, but no arrays: an array that hides inside a function is cut by no plan and sharded by no layout.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, TypeGuard, cast

import jax
import numpy as np

from combinators.errors import KernelError, message
from combinators.kernels.code import is_library_function, loaded_globals
from combinators.kernels.fingerprint import fingerprint as fingerprint
from combinators.kernels.fingerprint import is_traced
from combinators.kernels.names import public_name


def check_kernel(fn: object, where: str) -> None:
    """Refuse a kernel that cannot be called or that holds arrays.

    Arrays are looked for in closure cells, default arguments, arguments of partials, the object of a bound method, the
    fields of a callable object, and the globals that the function loads by name; inside any pytree of these, and inside
    the functions that they hold. A global that holds arrays in a container is not looked into. Traced arrays count.

    Args:
      fn: the kernel.
      where: the operation that takes it, as the error names it: `"tp.Map(gelu)"`.

    Raises:
      KernelError: when `fn` is not callable, or when it holds arrays; every one of them is named.
    """
    if not callable(fn):
        got = f"got {type(fn).__name__}: {fn!r}"[:200]
        raise KernelError(
            message(f"{where} needs a function as its kernel.", got, remedy="Pass a function from arrays to arrays.")
        )
    held = list(dict.fromkeys(_held_arrays(fn, short_name(fn), "", [])))
    if held:
        remedy = "Pass it as an operand." if len(held) == 1 else "Pass each as an operand."
        raise KernelError(message(f"{where} has a kernel that closes over arrays.", *held, remedy=remedy))


def same(a: object, b: object) -> bool:
    """Tell whether two kernels are one: the same object, or equal in structure.

    Args:
      a: a kernel.
      b: another one.

    Returns:
      True where their fingerprints are equal. Kernels without a fingerprint are equal to themselves only.
    """
    if a is b:
        return True
    try:
        return fingerprint(a) == fingerprint(b)
    except KernelError:
        return False


def short_name(fn: object) -> str:
    """Give the name by which paths and errors call a kernel.

    Args:
      fn: the kernel.

    Returns:
      A name made of letters, digits and underscores: `"gelu"`; `"attention_kernel"` for an `AttentionKernel(...)`;
      the name of the function inside a partial; `"lambda"` for a lambda.
    """
    if isinstance(fn, functools.partial):
        return short_name(cast("functools.partial[object]", fn).func)
    if (public := public_name(fn)) is not None:
        name: object = re.split(r"[.:]", public)[-1]
    else:
        name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        name = type(fn).__name__
    if isinstance(fn, type) or name == type(fn).__name__:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return re.sub(r"\W+", "_", name).strip("_") or "kernel"


def _held_arrays(value: object, name: str, place: str, seen: list[object]) -> Iterator[str]:
    """Yield a description of each array that a value holds, in a fixed order."""
    if _is_array(value):
        yield f"`{name}`{place} is {_describe(value)}"
    elif callable(value) or dataclasses.is_dataclass(value):
        # Cycles are real: a recursive local function is in its own closure.
        if not any(value is other for other in seen):
            seen.append(value)
            yield from _held_by_callable(value, name, place, seen)
    else:
        for suffix, leaf in _leaves(value):
            if leaf is not value:
                yield from _held_arrays(leaf, f"{name}{suffix}", place, seen)


def _held_by_callable(fn: object, name: str, place: str, seen: list[object]) -> Iterator[str]:
    """Yield the arrays inside a function, a partial, a bound method or an object with fields."""
    public = public_name(fn)
    if isinstance(fn, type) or (public is not None and public.partition(":")[0].partition(".")[0] in ("jax", "numpy")):
        return
    if isinstance(fn, functools.partial):
        partial = cast("functools.partial[object]", fn)
        yield from _held_arrays(partial.func, "func", " of the partial", seen)
        for index, argument in enumerate(partial.args):
            yield from _held_arrays(argument, f"args[{index}]", " of the partial", seen)
        for keyword, argument in partial.keywords.items():
            yield from _held_arrays(argument, keyword, " of the partial", seen)
    elif isinstance(fn, MethodType):
        # Every look at a method of a class makes another one.
        if not any(fn.__self__ is other for other in seen):
            seen.append(fn.__self__)
            yield from _held_by_object(fn.__self__, seen)
        yield from _held_arrays(fn.__func__, name, place, seen)
    elif isinstance(fn, FunctionType):
        yield from _held_by_function(fn, seen)
    else:
        yield from _held_by_object(fn, seen)
    wrapped = getattr(fn, "__wrapped__", None)
    if callable(wrapped):
        yield from _held_arrays(wrapped, name, place, seen)


def _held_by_function(fn: FunctionType, seen: list[object]) -> Iterator[str]:
    """Yield the arrays in the closure, the defaults and the direct globals of a Python function."""
    where = f"`{short_name(fn)}`"
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:  # not bound yet: the function is checked before its scope is complete
            continue
        yield from _held_arrays(content, name, f" in the closure of {where}", seen)
    for name, default in _defaults(fn):
        yield from _held_arrays(default, name, f" among the defaults of {where}", seen)
    if is_library_function(fn):  # the wrapper that jax.grad or jax.vmap made: what it wraps is in its closure
        return
    for name in loaded_globals(fn.__code__):
        content = fn.__globals__.get(name)
        if _is_array(content):
            yield f"`{name}` among the globals of {where} is {_describe(content)}"


def _held_by_object(value: object, seen: list[object]) -> Iterator[str]:
    """Yield the arrays in the fields of an object, and in what its `__call__` reads."""
    kind = type(value).__name__
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = sorted(getattr(value, "__dict__", {}))
    for name in names:
        yield from _held_arrays(getattr(value, name, None), name, f" among the fields of `{kind}`", seen)
    call = inspect.getattr_static(type(value), "__call__", None)
    if isinstance(call, FunctionType):
        yield from _held_arrays(call, kind, "", seen)


def _defaults(fn: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the names and values of the default arguments of a function."""
    code, values = fn.__code__, fn.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    yield from zip(positional[len(positional) - len(values) :], values, strict=True)
    yield from (fn.__kwdefaults__ or {}).items()


def _leaves(value: object) -> list[tuple[str, object]]:
    """Flatten a pytree to the path and the value of each leaf; what cannot be flattened has no leaves."""
    flatten = cast("Callable[[object], tuple[list[tuple[Any, object]], object]]", jax.tree_util.tree_flatten_with_path)
    try:
        return [(jax.tree_util.keystr(path), leaf) for path, leaf in flatten(value)[0]]
    except (TypeError, ValueError):  # a dict whose keys have no order
        parts = cast("dict[object, object]", value).items() if isinstance(value, dict) else ()
        return [(f"[{key!r}]", part) for key, part in parts]


def _is_array(value: object) -> TypeGuard[jax.Array | np.ndarray[Any, Any]]:
    """Whether it holds numbers: the devices of a mesh are an array as well, of objects."""
    return isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and not cast("Any", value).dtype.hasobject)


def _describe(array: jax.Array | np.ndarray[Any, Any]) -> str:
    """Describe an array by its kind, dtype and shape."""
    kind = "a traced array" if is_traced(array) else "an array"
    return f"{kind}, {array.dtype}[{','.join(map(str, array.shape))}]"
