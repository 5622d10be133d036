"""Values that never change: a copy is the value itself, and a pickle names functions as imports do.

Copying went through what functions are made of. A copy of `jnp.add` is another function, which no table knows: the
copy of a monoid lost its native collective, and an all-reduce became an all-gather. JAX's own functions cannot be
pickled at all.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Self, cast

from combinators.frozen import dataclass
from combinators.kernels.names import public_name, resolve


class Immutable:
    """Base of values that are their own copies."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        name = public_name(self)
        if name is not None:  # a decorated function, whose import gives this very object
            return _named, (name,)
        return _rebuilt, (type(self), _packed_fields(self))


def copied_with_parts(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of an object that holds something mutable, made of copies of its attributes."""
    new = memo[id(value)] = object.__new__(type(value))
    vars(new).update({name: copy.deepcopy(part, memo) for name, part in _kept(value).items()})
    return new


@dataclass(frozen=True)
class _Named:
    """Stands for a function that an import gives."""

    name: str


@dataclass(frozen=True)
class _Made:
    """Stands for an object that is put together again from its fields."""

    kind: Any
    fields: dict[str, Any]


def _kept(value: Any) -> dict[str, Any]:
    """The attributes of an object that are no caches."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    caches = {name for base in type(value).__mro__ for name, part in vars(base).items() if _is_cache(part)}
    return {name: part for name, part in vars(value).items() if name not in caches}


def _is_cache(attribute: Any) -> bool:
    return isinstance(attribute, functools.cached_property)


def _packed_fields(value: Any) -> dict[str, Any]:
    return {name: _packed(part) for name, part in _kept(value).items()}


def _packed(value: Any) -> Any:
    if isinstance(value, Immutable):
        return value
    if callable(value) and (name := public_name(value)) is not None:
        return _Named(name)
    if isinstance(value, functools.partial):
        partial = cast("functools.partial[Any]", value)
        return _Made(functools.partial, {"parts": _packed((partial.func, partial.args, partial.keywords))})
    if type(value) in (tuple, list):
        parts = [_packed(part) for part in cast("tuple[Any, ...]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    if type(value) is dict:
        return {key: _packed(part) for key, part in cast("dict[Any, Any]", value).items()}
    if dataclasses.is_dataclass(value) and type(value).__reduce__ is object.__reduce__:
        return _Made(type(value), _packed_fields(value))
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, _Named):
        return _named(value.name)
    if isinstance(value, _Made):
        if value.kind is functools.partial:
            function, args, keywords = _unpacked(value.fields["parts"])
            return functools.partial(function, *args, **keywords)
        return _rebuilt(value.kind, value.fields)
    if type(value) in (tuple, list):
        parts = [_unpacked(part) for part in cast("tuple[Any, ...]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    if type(value) is dict:
        return {key: _unpacked(part) for key, part in cast("dict[Any, Any]", value).items()}
    return value


def _named(name: str) -> Any:
    return resolve(*name.split(":", 1))


def _rebuilt(kind: Any, fields: dict[str, Any]) -> Any:
    new = object.__new__(kind)
    for name, part in fields.items():
        object.__setattr__(new, name, _unpacked(part))
    return new
