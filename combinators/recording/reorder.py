"""Values as arrays are used: in another order of axes, in another dtype."""

from __future__ import annotations

import operator
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import TensorType
from combinators.operations.compositions import Rearrangement, groups
from combinators.operations.operation import Operation
from combinators.recording.arithmetic import elementwise
from combinators.recording.value import Value


@dataclass(frozen=True)
class Cast:
    """A cell-by-cell change of dtype."""

    dtype: np.dtype[Any]

    def __call__(self, block: Any) -> Any:
        """The block in the other dtype."""
        return block.astype(self.dtype)


def astype(value: Value, dtype: Any) -> Value:
    """The value in `dtype`; itself where it has it.

    Raises:
      GraphError: when JAX has no such dtype.
    """
    kind = TensorType((), dtype).dtype
    return value if value.dtype == kind else elementwise(Cast(jnp.dtype(kind)), value, name="cast")


def transpose(value: Value, axes: tuple[Any, ...]) -> Value:
    """The value with its axes in the order `axes`, by default the opposite one.

    Raises:
      GraphError: when `axes` is no order of the axes.
    """
    given: Any = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list | type(None)) else axes
    try:
        listed = [operator.index(axis) % value.ndim for axis in cast("tuple[Any, ...]", given or ())]
    except (TypeError, ZeroDivisionError):
        listed = [-1]
    order = listed if given else list(reversed(range(value.ndim)))
    if sorted(order) != list(range(value.ndim)):
        raise GraphError(
            message(
                "a value cannot be transposed so",
                f"got {value!r}, axes {axes!r}",
                remedy='Give every axis once, or say it by name: tp.rearrange("b s d -> b d s")(x).',
            )
        )
    if value.ndim < 2:
        return value
    names = [f"d{axis}" for axis in range(value.ndim)]
    signature = Signature.parse(f"{' '.join(names)} -> {' '.join(names[axis] for axis in order)}")
    kernel = Rearrangement(groups(signature.operands[0].axes), groups(signature.results[0].axes), ())
    return value.trace.apply(Operation(signature, kernel, name="transpose"), [value])
