"""The type of a tensor: named dimensions, in order, and a dtype."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes

from combinators.errors import GraphError, message, spelt
from combinators.kernels.immutable import Immutable


@dataclass(frozen=True, init=False)
class TensorType(Immutable):
    """Named dimensions and a dtype; what a value of a program is before it has numbers.

    Args:
      dims: axis name to size, in order. `None` or a bare integer leaves an axis anonymous:
        `TensorType({"batch": 8})`, `TensorType([("batch", 8), (None, 3)])`, `TensorType((8, 3))`.
      dtype: any dtype that JAX has.

    Raises:
      GraphError: where a name stands twice, a size is negative or not an integer, or the dtype is unknown.
    """

    names: tuple[str | None, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(
        self, dims: Mapping[str, int] | Iterable[tuple[str | None, int] | int], dtype: Any = jnp.float32
    ) -> None:
        if isinstance(dims, str | bytes) or not isinstance(dims, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(
                message(
                    "a tensor type has no dimensions to read",
                    f"got {type(dims).__name__}: {spelt(dims)}",
                    remedy='Write tp.TensorType({"batch": 8}), or sizes alone: tp.TensorType((8, 3)).',
                )
            )
        given: Any = cast("Mapping[str, int]", dims).items() if isinstance(dims, Mapping) else dims
        if isinstance(dims, set | frozenset) or getattr(dims, "ndim", 1) == 0:
            raise _no_list("the dimensions of a tensor type", dims)
        pairs = [_pair(entry) for entry in given]
        names = tuple(_name(name) for name, _ in pairs)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "shape", tuple(_size(name, size) for name, size in pairs))
        object.__setattr__(self, "dtype", _dtype(dtype))
        known = [name for name in names if name is not None]
        twice = sorted({name for name in known if known.count(name) > 1})
        if twice:
            raise GraphError(
                message(
                    f"a tensor type names `{twice[0]}` twice",
                    f"got {self}",
                    remedy="Give every axis its own name: a tensor never carries a name twice.",
                )
            )

    @classmethod
    def make(cls, names: Iterable[str | None], shape: Iterable[int], dtype: Any) -> TensorType:
        """Build a type from names and sizes given apart.

        Raises:
          GraphError: when they are no lists, or not as many.
        """
        for what, given in (("names", names), ("sizes", shape)):
            if isinstance(given, str | set | frozenset) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise _no_list(f"the {what} of a tensor type", given)
        names, shape = tuple(names), tuple(shape)
        if len(names) != len(shape):
            told = f"got {len(names)} names, {len(shape)} sizes"
            raise GraphError(message("a tensor type has a name for every size", told, remedy="Give as many of both."))
        return cls(tuple(zip(names, shape, strict=True)), dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of cells."""
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def nbytes(self) -> int:
        """The bytes of a dense array of this type."""
        return self.size * self.dtype.itemsize

    @cached_property
    def struct(self) -> jax.ShapeDtypeStruct:
        """The same type without names, as JAX takes it."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def __str__(self) -> str:
        dims = ", ".join(str(s) if n is None else f"{n}={s}" for n, s in zip(self.names, self.shape, strict=True))
        return f"{self.dtype.name}({dims})"


def type_of(value: Any, where: str) -> TensorType:
    """Return the type of an array, number, `ShapeDtypeStruct` or `TensorType`; of random keys that of their words.

    Args:
      value: what has a type; its numbers are not looked at.
      where: what it is, as the error names it.

    Returns:
      The type with the dtype that JAX computes in: float32 for float64 where 64 bits are off.

    Raises:
      GraphError: when `value` is none of these.
    """
    if isinstance(value, TensorType):
        return TensorType.make(value.names, value.shape, dtypes.canonicalize_dtype(value.dtype))
    if isinstance(value, bool | int | float | complex):
        return TensorType((), dtypes.canonicalize_dtype(type(value)))
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and not isinstance(value, type):
        sizes = cast("tuple[int, ...]", shape)
        if is_key(dtype):
            words = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(sizes, dtype))
            return TensorType(words.shape, words.dtype)
        return TensorType.make(_names_of(value, sizes), sizes, dtypes.canonicalize_dtype(_dtype(dtype)))
    raise GraphError(
        message(
            f"{where} is not an array",
            "expected a jax or numpy array, a number, a jax.ShapeDtypeStruct or a tp.TensorType",
            f"got {type(value).__name__}: {spelt(value)}",
            remedy="Convert it with jnp.asarray, or keep what is not an array outside the program.",
        )
    )


def _names_of(value: Any, sizes: Sequence[int]) -> Sequence[str | None]:
    """What something stored calls its axes."""
    names: Any = getattr(value, "names", None)
    is_named = isinstance(names, tuple) and len(cast("tuple[Any, ...]", names)) == len(sizes)
    return cast("Sequence[str | None]", names) if is_named else (None,) * len(sizes)


def _no_list(what: str, got: object) -> GraphError:
    details = "expected a tuple or a list, which has an order", f"got {type(got).__name__}: {spelt(got)}"
    return GraphError(message(f"{what} cannot be read", *details, remedy="Write them in brackets, in order."))


def _pair(entry: Any) -> tuple[Any, Any]:
    pair = cast("tuple[Any, ...]", entry) if isinstance(entry, tuple) else (None, entry)
    if len(pair) != 2:
        raise GraphError(
            message(
                "a dimension of a tensor type is a name and a size",
                f"got {spelt(pair)}",
                remedy='Write ("batch", 8).',
            )
        )
    return pair[0], pair[1]


def _name(name: Any) -> str | None:
    if name is None:
        return None
    if isinstance(name, str) and name.isidentifier():
        return name if type(name) is str else str(name)  # a string of NumPy is shown otherwise
    raise GraphError(
        message(
            "an axis of a tensor type has no usable name",
            f"got {spelt(name)}",
            remedy="Name it by an identifier such as `batch`, or leave it anonymous with None.",
        )
    )


def _size(name: str | None, size: Any) -> int:
    try:
        value = -1 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        value = -1
    if value < 0:
        raise GraphError(
            message(
                f"the size of axis {name!r} is not a whole number of cells",
                f"got {size!r}",
                remedy="Give a non-negative integer.",
            )
        )
    return value


def _dtype(dtype: Any) -> np.dtype[Any]:
    if is_key(dtype):
        raise GraphError(
            message(
                "a tensor type has the dtype of typed random keys",
                f"got dtype {dtype}",
                remedy="Write its words: tp.TensorType((2,), jnp.uint32). Keys themselves may be passed as arguments.",
            )
        )
    try:
        found = None if dtype is None else np.dtype(jnp.dtype(dtype))
    except (TypeError, ValueError):
        found = None
    if found is None or not (jnp.issubdtype(found, np.number) or found == np.bool_):
        raise GraphError(
            message(
                "a tensor type has a dtype that JAX does not have",
                f"got {spelt(dtype)}",
                remedy="Give a dtype of numbers or booleans, such as jnp.float32.",
            )
        )
    return found


@lru_cache(maxsize=256)
def is_inexact(dtype: Any) -> bool:
    """Whether values of this dtype have derivatives: floating and complex ones, the short formats too."""
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def is_key(dtype: Any) -> bool:
    """Whether it is the dtype of typed random keys, `jax.random.key`."""
    return hasattr(dtype, "type") and bool(jnp.issubdtype(dtype, dtypes.prng_key))


def words_of(leaf: Any) -> Any:
    """The words of a typed random key, which programs compute with; anything else as it is."""
    return jax.random.key_data(leaf) if isinstance(leaf, jax.Array) and is_key(leaf.dtype) else leaf


def keys_again(words: Any, like: Any) -> Any:
    """Words as typed random keys where `like` is one, as they are elsewhere."""
    if isinstance(like, jax.Array) and is_key(like.dtype):
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(like))
    return words
