"""Products whose rows come in groups, each with a matrix of its own (`lax.ragged_dot`), on blocks of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.monoids import Sum
from tapestry_jax.lowering.on_device.varying import vary, varying_axes


@dataclass(frozen=True)
class WholeGroups:
    """`lax.ragged_dot_general` of all rows and groups.

    Attributes:
      numbers: which axis is which.
      precision: of the products.
      sums: the dtype that they are added up in, by name; None is the operands'.
    """

    numbers: Any
    precision: Any
    sums: str | None

    def __call__(self, left: Any, right: Any, sizes: Any, *at: Any, preferred_element_type: Any = None) -> Any:
        """The sums of products."""
        del at
        axes = frozenset[str]().union(*map(varying_axes, (left, right, sizes)))
        kind = preferred_element_type if preferred_element_type is not None else self.sums
        return lax.ragged_dot_general(
            vary(left, axes),
            vary(right, axes),
            vary(sizes, axes),
            self.numbers,
            precision=self.precision,
            preferred_element_type=None if kind is None else jnp.dtype(kind),
        )


@dataclass(frozen=True)
class Grouped:
    """Sums of products of some rows with the matrices of some groups; both in order, with gaps or without.

    Rows of groups that are elsewhere are zero, and counted with the next group that is here.

    Attributes:
      whole: the same of all rows and groups.
      rows: for each operand that has rows their axis.
      batch: for each of these the axes that the sizes of groups have before their last.
    """

    whole: WholeGroups
    rows: tuple[int, ...]
    batch: tuple[tuple[int, ...], ...]
    merged_by: ClassVar[tuple[Monoid, ...]] = (Sum,)

    def __call__(
        self, left: Any, right: Any, sizes: Any, rows: Any, groups: Any, *, preferred_element_type: Any = None
    ) -> Any:
        """The sums over these groups, or, where rows are contracted, over these rows."""
        count = sizes.shape[-1]
        ends = jnp.cumsum(sizes.astype(jnp.int32), axis=-1)
        place = jnp.clip(groups, 0, max(count - 1, 0))
        stops = jnp.take(ends, place, axis=-1)
        starts = stops - jnp.take(sizes.astype(jnp.int32), place, axis=-1)
        before = rows < stops[..., None]  # ..., group, row
        inside = (before & (rows >= starts[..., None])).any(-2)
        blocks = [left, right]
        for side, (axis, batch) in enumerate(zip(self.rows, self.batch, strict=True)):
            blocks[side] = _kept(inside, blocks[side], (*batch, axis))
        own = jnp.diff(before.sum(-1, dtype=sizes.dtype), prepend=jnp.zeros((), sizes.dtype), axis=-1)
        return self.whole(*blocks, own, preferred_element_type=preferred_element_type)


def _kept(inside: Any, block: Any, axes: Sequence[int]) -> Any:
    """The block with zeros where it is not inside, as these axes of it tell."""
    moved = jnp.transpose(inside, sorted(range(len(axes)), key=lambda at: axes[at]))
    full = jnp.expand_dims(moved, [axis for axis in range(block.ndim) if axis not in axes])
    return jnp.where(full, block, jnp.zeros((), block.dtype))
