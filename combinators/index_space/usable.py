"""Arguments that a program cannot run on: types, deleted or masked arrays, numbers out of range, devices apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from combinators.errors import GraphError, message
from combinators.index_space.tensor_type import TensorType
from combinators.kernels.fingerprint import is_traced


def check_usable(names: Sequence[str], leaves: Sequence[Any], where: str) -> None:
    """Refuse arguments that a program cannot run on, with what to do about each.

    Args:
      names: of the arguments.
      leaves: the arguments.
      where: the program, as the error names it.

    Raises:
      GraphError: naming the first kind of trouble, and all arguments that have it.
    """
    for problem, remedy, is_wrong in (
        ("has a type and no numbers", "Pass an array; types are for tp.trace and lower.", _is_type),
        ("was deleted: it was donated to another function", "Keep the result of that function instead.", is_deleted),
        ("is larger than 64 bits", "Pass an array of a dtype that holds it.", _is_out_of_range),
        (
            "has its bytes in an order that JAX does not take",
            "Pass array.astype(array.dtype.newbyteorder('=')).",
            _is_turned,
        ),
        ("has a mask, which would be dropped", "Fill it in, array.filled(0), or pass the mask too.", _is_masked),
    ):
        wrong = [f"`{name}` {problem}" for name, leaf in zip(names, leaves, strict=False) if is_wrong(leaf)]
        if wrong:
            raise GraphError(message(f"`{where}` cannot run on its arguments", *wrong, remedy=remedy))


def check_together(names: Sequence[str], leaves: Sequence[Any], where: str) -> None:
    """Refuse arrays that were put on different devices, on which JAX runs nothing together.

    Args:
      names: of the arguments.
      leaves: the arguments.
      where: the program, as the error names it.

    Raises:
      GraphError: naming two of them and where they lie.
    """
    found = [(name, _devices(leaf)) for name, leaf in zip(names, leaves, strict=False)]
    placed = [(name, devices) for name, devices in found if devices]
    for name, devices in placed[1:]:
        first, here = placed[0]
        if devices != here:
            raise GraphError(
                message(
                    f"`{where}` cannot run on its arguments",
                    f"`{first}` lies on {_told(here)}, `{name}` on {_told(devices)}",
                    remedy="Bring them together with jax.device_put; plan.compile() takes arrays wherever they lie.",
                )
            )


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct | TensorType)


def is_deleted(leaf: Any) -> bool:
    """Whether something is an array whose memory was given away; of what is traced nothing is known."""
    return isinstance(leaf, jax.Array) and not is_traced(leaf) and leaf.is_deleted()


def _is_out_of_range(leaf: Any) -> bool:
    return isinstance(leaf, int) and not isinstance(leaf, bool | np.bool_) and not -(2**63) <= leaf < 2**64


def _is_turned(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic) and not leaf.dtype.isnative


def _is_masked(leaf: Any) -> bool:
    return isinstance(leaf, np.ma.MaskedArray)


def _devices(leaf: Any) -> frozenset[Any]:
    """The devices that an array was put on; none where it goes wherever the others are."""
    if not isinstance(leaf, jax.Array) or is_traced(leaf) or not leaf.committed:
        return frozenset()
    return frozenset(leaf.sharding.device_set)


def _told(devices: frozenset[Any]) -> str:
    names = sorted(map(str, devices))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
