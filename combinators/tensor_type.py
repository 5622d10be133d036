"""The type of a tensor: named dimensions, in order, and a dtype."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import GraphError, message


@dataclass(frozen=True, init=False)
class TensorType:
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
        pairs = list(dims.items()) if isinstance(dims, Mapping) else [_pair(entry) for entry in dims]
        names = tuple(name for name, _ in pairs)
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
        """Build a type from names and sizes given apart."""
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

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        """The same type without names, as JAX takes it."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def __str__(self) -> str:
        dims = ", ".join(str(s) if n is None else f"{n}={s}" for n, s in zip(self.names, self.shape, strict=True))
        return f"{self.dtype.name}({dims})"


def type_of(value: Any, where: str) -> TensorType:
    """Return the type of an array, number, `ShapeDtypeStruct` or `TensorType`.

    Raises:
      GraphError: when `value` is none of these.
    """
    if isinstance(value, TensorType):
        return value
    if isinstance(value, bool | int | float | complex):
        return TensorType((), jax.dtypes.canonicalize_dtype(type(value)))
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and not isinstance(value, type):
        return TensorType(tuple(shape), dtype)  # pyright: ignore[reportUnknownArgumentType]
    raise GraphError(
        message(
            f"{where} is not an array",
            "expected a jax or numpy array, a number, a jax.ShapeDtypeStruct or a tp.TensorType",
            f"got {type(value).__name__}: {value!r:.80}",
            remedy="Convert it with jnp.asarray, or keep what is not an array outside the program.",
        )
    )


def _pair(entry: Any) -> tuple[str | None, int]:
    return (entry[0], entry[1]) if isinstance(entry, tuple) else (None, entry)


def _size(name: str | None, size: Any) -> int:
    try:
        value = size.__index__()
    except AttributeError:
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
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        raise GraphError(
            message(
                "a typed random key is not a tensor",
                f"got dtype {dtype}",
                remedy="Pass jax.random.key_data(key), a uint32 tensor.",
            )
        )
    try:
        return np.dtype(jnp.dtype(dtype))
    except TypeError as error:
        raise GraphError(
            message("a tensor type has an unknown dtype", f"got {dtype!r}", remedy="Give a dtype such as jnp.float32.")
        ) from error
