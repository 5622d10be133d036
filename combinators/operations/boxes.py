"""Whether a kernel is right for a part of its index space: its shapes there against its signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from combinators.errors import KernelError, message
from combinators.index_space.extent import axis_size
from combinators.operations.shaped import Shaped


def check_box(shaped: Shaped, leaves: Sequence[Any], sizes: Mapping[str, int], *, is_state: bool) -> None:
    """Hold what a kernel gives for an index box of `sizes` against its signature.

    A kernel that holds sizes of its own (`jnp.arange(3)`) fits the whole index space, and no part of it.

    Args:
      shaped: the operation.
      leaves: what the kernel gave: a state, or results.
      sizes: of the box.
      is_state: whether they are leaves of a state.

    Raises:
      KernelError: when a leaf has another shape than the box.
    """
    named = shaped.carrier if is_state else [tuple(map(str, axes)) for axes in shaped.result_axes]
    wrong = [
        f"it gives ({' '.join(axes)}) the shape {found}, and not {expected}"
        for axes, found, expected in zip(
            named, map(jnp.shape, leaves), _box_shapes(shaped, sizes, is_state=is_state), strict=False
        )
        if found != expected
    ]
    if wrong or len(leaves) != len(named):
        raise not_of_any_size(shaped, sizes, *wrong)


def not_of_any_size(shaped: Shaped, sizes: Mapping[str, int], *lines: str) -> KernelError:
    """The error of a kernel that a part of its index space is too small for."""
    return KernelError(
        message(
            f"the kernel of `{shaped.operation.name}` is not right for a box of any size.",
            f"signature {shaped.signature}",
            f"box {', '.join(f'{name}={size}' for name, size in sizes.items())}",
            *lines,
            remedy="Take sizes from the blocks' shapes and places from coordinates (`@dim`), or do not cut these axes.",
        )
    )


def _box_shapes(shaped: Shaped, sizes: Mapping[str, int], *, is_state: bool) -> list[tuple[int, ...]]:
    if is_state:
        return [
            tuple(sizes.get(name, size) for name, size in zip(axes, leaf.shape, strict=True))
            for axes, leaf in zip(shaped.carrier, shaped.state, strict=True)
        ]
    return [
        tuple(
            axis_size(axis, sizes) if all(term.name in sizes for term in axis.terms) else size
            for axis, size in zip(axes, leaf.shape, strict=True)
        )
        for axes, leaf in zip(shaped.result_axes, shaped.results, strict=True)
    ]
