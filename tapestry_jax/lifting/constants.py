"""Numbers and arrays that a function holds."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.errors import KernelError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.cells import as_computed
from tapestry_jax.lifting.values import LeafStep, Values

LARGEST = 1 << 20
"""Bytes of the largest array that stands in a graph as a constant."""


@dataclass(frozen=True)
class Table:
    """A small array, of which a block takes the cells of its coordinates.

    Attributes:
      data: its bytes, row-major.
      dtype: its name.
      shape: of the array.
    """

    data: bytes
    dtype: str
    shape: tuple[int, ...]

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The array."""
        return np.frombuffer(self.data, jnp.dtype(self.dtype)).reshape(self.shape)

    def __call__(self, *coordinates: Any) -> Any:
        """The cells of a block; axes of size 1 have no coordinates."""
        array = jnp.asarray(self.array)
        listed = iter(coordinates)
        for axis, size in enumerate(self.shape):
            if size != 1:
                array = jnp.take(array, next(listed), axis=axis, mode="clip") if size else array
        return array if coordinates else as_computed(array)


def scalar_of(value: Any, dtype: Any) -> Any:
    """A number as a NumPy scalar of its dtype."""
    return np.asarray(value).astype(dtype)[()]


def constant_step(array: np.ndarray[Any, Any], values: Values, place: str) -> LeafStep:
    """An array that the function holds, as an operation without operands.

    Raises:
      KernelError: when it is large: what a plan should place has to come in as an argument.
    """
    if array.nbytes > LARGEST:
        sizes = ",".join(map(str, array.shape))
        raise KernelError(
            message(
                f"the function that is lifted holds an array, {array.dtype.name}[{sizes}]",
                f"it has {array.nbytes} bytes, and what stands in a graph as a constant has at most {LARGEST}",
                *([f"used at {place}"] if place else []),
                remedy="Pass it as an argument; for a module, lift the module itself: tp.lift(model, x).",
            )
        )
    dims = [(f"d{axis}", size) for axis, size in enumerate(array.shape) if size != 1]
    result = Operand(
        tuple(Axis("one") if s == 1 else Axis("affine", (Term(f"d{a}"),)) for a, s in enumerate(array.shape))
    )
    told = Signature(tuple(Operand(coordinate=dim) for dim, _ in dims), (result,))
    kernel = Table(array.tobytes(), array.dtype.name, array.shape)
    operation = Operation(told, kernel, sizes=tuple(sorted(dims)), name="constant")
    return LeafStep(operation, [], [values.new(array.shape, array.dtype)], place)
