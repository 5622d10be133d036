"""Arguments that a program cannot run on: types, deleted arrays, arrays of other devices, numbers out of range."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np

from combinators.errors import GraphError, message
from combinators.index_space.tensor_type import TensorType
from combinators.kernels.fingerprint import is_traced


def check_usable(names: Sequence[str], leaves: Sequence[Any], where: str, devices: Collection[Any] = ()) -> None:
    """Refuse arguments that a program cannot run on, with what to do about each.

    Args:
      names: of the arguments.
      leaves: the arguments.
      where: the program, as the error names it.
      devices: those of the plan's mesh; none where the program is not planned.

    Raises:
      GraphError: naming the first kind of trouble, and all arguments that have it.
    """
    for problem, remedy, is_wrong in (
        ("has a type and no numbers", "Pass an array; types are for tp.trace and lower.", _is_type),
        ("was deleted: it was donated to another function", "Keep the result of that function instead.", _is_deleted),
        ("is larger than 64 bits", "Pass an array of a dtype that holds it.", _is_out_of_range),
        (
            "has its bytes in an order that JAX does not take",
            "Pass array.astype(array.dtype.newbyteorder('=')).",
            _is_turned,
        ),
        (
            "lies on other devices than the plan's",
            "Bring it there with plan.put.",
            lambda leaf: _is_elsewhere(leaf, devices),
        ),
    ):
        wrong = [f"`{name}` {problem}" for name, leaf in zip(names, leaves, strict=False) if is_wrong(leaf)]
        if wrong:
            raise GraphError(message(f"`{where}` cannot run on its arguments", *wrong, remedy=remedy))


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct | TensorType)


def _is_deleted(leaf: Any) -> bool:
    try:
        return isinstance(leaf, jax.Array) and leaf.is_deleted()
    except (AttributeError, jax.errors.ConcretizationTypeError):  # inside jit, grad, vmap
        return False


def _is_out_of_range(leaf: Any) -> bool:
    return isinstance(leaf, int) and not isinstance(leaf, bool | np.bool_) and not -(2**63) <= leaf < 2**64


def _is_turned(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic) and not leaf.dtype.isnative


def _is_elsewhere(leaf: Any, devices: Collection[Any]) -> bool:
    if not devices or not isinstance(leaf, jax.Array) or is_traced(leaf) or not leaf.committed:
        return False
    return leaf.sharding.device_set != set(devices)
