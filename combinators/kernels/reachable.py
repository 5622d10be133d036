"""Arrays that a function can reach: through closures, globals, attributes, containers, properties and helpers.

What a function reads is followed by the names that stand in its code and in the code of all that it can call, so that a
table beside it, which it never reads, does not count. JAX, NumPy and this library are not looked into.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from combinators.frozen import dataclass
from combinators.kernels.code import attribute_names, loaded_globals
from combinators.kernels.fingerprint import is_traced
from combinators.kernels.names import public_name

# Bounds a walk through data that happens to hang on an object, or through a large library; kernels hold few things.
_MOST = 20_000
# What the code nearest to a kernel reads is known after one walk and found by the next, also where both end early.
_WALKS_THAT_END_EARLY = 2
_PLAIN = (bool, int, float, complex, str, bytes, range, slice, type(None), type(Ellipsis), np.generic, np.dtype)
_LIBRARIES = frozenset({"jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "combinators", "tapestry_jax"})


@dataclass(frozen=True)
class Found:
    """An array, and the expression that leads to it: `cfg.table`, ` among the globals of `f``."""

    array: Any
    expression: str
    place: str

    def __str__(self) -> str:
        return f"`{self.expression}`{self.place} is {describe_array(self.array)}"


def describe_array(array: Any) -> str:
    """Describe an array, or what turns into one, by its kind, dtype and shape."""
    if isinstance(array, (jax.Array, np.ndarray)) and is_traced(cast("Any", array)):
        kind = "a traced array"
    else:
        kind = "an array" if isinstance(array, (jax.Array, np.ndarray)) else f"a {type(array).__name__}"
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    sizes = ",".join(map(str, cast("tuple[int, ...]", shape))) if isinstance(shape, tuple) else "..."
    return kind if dtype is None else f"{kind}, {dtype}[{sizes}]"


def is_library(module: object) -> bool:
    """Whether a module of this name belongs to JAX, NumPy, SciPy or this library, whose constants are code."""
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def reachable_arrays(function: object, name: str) -> list[Found]:
    """Find the arrays that a function can read.

    Args:
      function: any callable.
      name: what the expressions call it.

    Returns:
      Every array once, with one way that leads to it; what is nearest comes first.
    """
    found = dict[int, Found]()
    for each in reached(function, name).reads:
        if _is_array(each.value):
            found.setdefault(id(each.value), Found(each.value, each.expression, each.place))
    return list(found.values())


class Read(NamedTuple):
    """What a function can read, and the expression that leads to it."""

    value: object
    expression: str
    place: str


@dataclass(frozen=True)
class Reached:
    """What a function can reach.

    Attributes:
      reads: every value by every way that leads to it, the function itself first; of what is looked into, by all.
      is_whole: whether that is all; a walk ends after many objects.
    """

    reads: tuple[Read, ...]
    is_whole: bool


def reached(function: object, name: str) -> Reached:
    """Find all that a function can read or call, in an order that follows from it.

    Args:
      function: any callable.
      name: what the expressions call it.
    """
    names: frozenset[str] = frozenset()
    early = 0
    while True:
        walk = _Walk(names)
        found = walk.run(function, name)
        early += not found.is_whole
        # A function that was reached by an attribute may read further attributes of what was passed before.
        if walk.names <= names or early == _WALKS_THAT_END_EARLY:
            return found
        names |= walk.names


class _Walk:
    """One pass, which follows the attributes called `known` and collects the names that it meets."""

    def __init__(self, known: frozenset[str]) -> None:
        self.known, self.names = known, set[str]()
        self._seen: dict[int, object] = {}
        self._queue: deque[tuple[object, str, str]] = deque()

    def run(self, function: object, name: str) -> Reached:
        found = [Read(function, name, "")]
        self._add(function, name, "")
        while self._queue and len(self._seen) < _MOST:
            value, expression, place = self._queue.popleft()
            for part in () if _is_array(value) else self._parts(value, expression, place):
                found.append(Read(*part))
                self._add(*part)
        return Reached(tuple(found), is_whole=not self._queue)

    def _add(self, value: object, expression: str, place: str) -> None:
        if not isinstance(value, _PLAIN) and id(value) not in self._seen:
            self._seen[id(value)] = value  # holds it, so that its id stays its own
            self._queue.append((value, expression, place))

    def _parts(self, value: object, expression: str, place: str) -> Iterator[tuple[object, str, str]]:
        """What a value is made of, as far as it may be read, and the expressions for it."""
        if isinstance(value, functools.partial):
            partial = cast("functools.partial[object]", value)
            yield partial.func, f"{expression}.func", place
            yield from ((part, f"{expression}.args[{i}]", place) for i, part in enumerate(partial.args))
            yield from ((part, f"{expression}.keywords[{key!r}]", place) for key, part in partial.keywords.items())
            yield from self._named(vars(partial), expression, place)
        elif isinstance(value, MethodType):
            yield value.__self__, expression.rpartition(".")[0] or expression, place
            yield value.__func__, expression, place
        elif isinstance(value, FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, BuiltinFunctionType):
            if not isinstance(value.__self__, ModuleType):
                yield value.__self__, expression.rpartition(".")[0] or expression, place
        elif isinstance(value, Mapping):
            pairs = _items(cast("Mapping[object, object]", value))
            yield from ((part, f"{expression}[{key!r}]", place) for key, part in pairs or ())
            if pairs is None:
                yield from self._of_object(value, expression, place)
        elif isinstance(value, (tuple, list, set, frozenset, deque)):
            parts = cast("tuple[object, ...]", value)
            yield from ((part, f"{expression}[{i}]", place) for i, part in enumerate(list(parts)[:_MOST]))
        elif isinstance(value, ModuleType):
            if not is_library(value.__name__):
                yield from self._named(vars(value), expression, place)
        elif isinstance(value, type):
            yield from self._of_class(value, expression, place)
        else:
            yield from self._of_object(value, expression, place)

    def _of_function(self, fn: FunctionType) -> Iterator[tuple[object, str, str]]:
        where = f"`{fn.__name__}`"
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                yield cell.cell_contents, name, f" in the closure of {where}"
            except ValueError:  # not bound yet
                continue
        yield fn.__defaults__, "__defaults__", f" of {where}"
        yield fn.__kwdefaults__, "__kwdefaults__", f" of {where}"
        yield getattr(fn, "__wrapped__", None), fn.__name__, ""
        yield from self._named(vars(fn), fn.__name__, "")
        if not is_library(fn.__globals__.get("__name__")):
            self.names.update(attribute_names(fn.__code__))
            for name in loaded_globals(fn.__code__):
                yield fn.__globals__.get(name), name, f" among the globals of {where}"

    def _of_object(self, value: object, expression: str, place: str) -> Iterator[tuple[object, str, str]]:
        cls, fields = type(value), dict(getattr(value, "__dict__", {}))
        if cls.__module__ == "inspect":
            return  # a signature: the defaults in it are looked at where the function has them
        for slot in (name for base in cls.__mro__ for name in _slots(base)):
            try:
                # Of the object itself: a user's way to read attributes may raise anything, and hide what is there.
                fields.setdefault(slot, object.__getattribute__(value, slot))
            except AttributeError:  # a slot that is empty
                continue
        # What a library made of users' functions is followed whole; of their own objects, what code reads.
        whole = is_library(cls.__module__)
        if whole and not (callable(value) or dataclasses.is_dataclass(value)):
            return  # a mesh, a device
        yield from self._named(fields, expression, place, whole=whole)
        wrapped = getattr(value, "__wrapped__", None) if whole or cls.__module__ == "functools" else None
        if callable(wrapped):
            yield wrapped, expression, place
        yield from self._of_class(cls, expression, place)

    def _of_class(self, cls: type, expression: str, place: str) -> Iterator[tuple[object, str, str]]:
        for base in cls.__mro__:
            if is_library(base.__module__) or base.__module__ in ("builtins", "typing", "abc"):
                continue
            for name, attribute in list(vars(base).items()):
                code = inspect.unwrap(_function_of(attribute)) if callable(_function_of(attribute)) else None
                # Operators and the like are called without their names.
                if isinstance(code, FunctionType):
                    # What the dataclass decorator writes reads every field.
                    if (name in self.known or _is_special(name)) and code.__code__.co_filename != "<string>":
                        yield code, name, ""
                elif name in self.known:
                    yield attribute, f"{expression}.{name}", place

    def _named(
        self, fields: Mapping[str, object], expression: str, place: str, *, whole: bool = False
    ) -> Iterator[tuple[object, str, str]]:
        for name, part in list(fields.items()):
            if whole or name in self.known:
                yield part, f"{expression}.{name}", place


def holds_own_code(function: object) -> bool:
    """Whether anything in a callable was written outside of JAX, NumPy and this library."""
    public = public_name(function)
    if public is not None:
        return not is_library(public.partition(":")[0])
    if isinstance(function, functools.partial):
        partial = cast("functools.partial[object]", function)
        return any(map(holds_own_code, (partial.func, *partial.args, *partial.keywords.values())))
    if isinstance(function, (tuple, list)):
        return any(map(holds_own_code, cast("tuple[object, ...]", function)))
    if isinstance(function, _PLAIN):
        return False
    if dataclasses.is_dataclass(function) and is_library(type(function).__module__):
        return any(holds_own_code(getattr(function, field.name)) for field in dataclasses.fields(function))
    return True


def _items(mapping: Mapping[object, object]) -> list[tuple[object, object]] | None:
    """What a mapping holds; None where it does not say: a user's may raise anything."""
    try:
        return list(mapping.items())[:_MOST]
    except Exception:  # noqa: BLE001 - it is then looked at as any other object is
        return None


def _is_array(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return not cast("Any", value).dtype.hasobject
    if isinstance(value, jax.Array):
        return True
    if isinstance(value, type) or is_library(type(value).__module__):
        return False
    # Data frames, tensors of other libraries, flax variables: what NumPy or JAX would read as an array.
    return any(inspect.getattr_static(value, name, None) is not None for name in ("__array__", "__jax_array__"))


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ("__init__", "__new__", "__repr__")


def _function_of(attribute: object) -> Any:
    """The function behind a property, a cached property, a static or a class method."""
    for name in ("fget", "func", "__func__"):
        inner = getattr(attribute, name, None)
        if isinstance(inner, FunctionType):
            return inner
    return attribute


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
