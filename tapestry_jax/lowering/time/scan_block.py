"""The block of a scan that a device has in a turn: where it lies, and who reads what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.merging.blocks import Axes, last_of_block
from combinators.merging.monoid import Monoid
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import valid_count
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_time


@final
@dataclass(frozen=True, eq=False)
class ScanBlock:
    """A block of the dimension that a scan runs over.

    Attributes:
      shaped: the scan.
      cut: of that dimension.
      here: the device and turn.
    """

    shaped: Shaped
    cut: Cut
    here: Here

    @property
    def monoid(self) -> Monoid:
        """What merges two states."""
        assert self.shaped.operation.monoid is not None
        return self.shaped.operation.monoid

    @property
    def over(self) -> str:
        """The dimension."""
        assert self.shaped.operation.over is not None
        return self.shaped.operation.over

    @property
    def reverse(self) -> bool:
        """Whether the last step comes first."""
        return self.shaped.operation.reverse

    @property
    def arguments(self) -> tuple[Monoid, Any, Sequence[Axes]]:
        """The monoid, the tree of its states and the axes of steps."""
        return self.monoid, self.shaped.state_tree, self.shaped.carrier

    @property
    def of_totals(self) -> tuple[Monoid, Any, Sequence[Axes]]:
        """The same with the axes of a total."""
        inner = [tuple(name for name in axes if name != self.over) for axes in self.shaped.carrier]
        return self.monoid, self.shaped.state_tree, inner

    @property
    def is_uneven(self) -> bool:
        """Whether some block has padding."""
        return self.cut.block * self.here.size(self.cut.axes) != self.shaped.sizes[self.over]

    @property
    def filled(self) -> int:
        """How many blocks hold steps, in all turns and on all devices."""
        return -(-self.shaped.sizes[self.over] // self.cut.block)

    @property
    def has_empty(self) -> bool:
        """Whether some block holds none."""
        return self.filled < self.here.size(self.cut.axes)

    @property
    def place(self) -> Any:
        """How many blocks with steps a scan meets before this one, in all turns and on all devices; below 0 of none."""
        index = self.here.index(self.cut.axes)
        return self.filled - 1 - index if self.reverse else index

    @cached_property
    def count(self) -> Any:
        """How many steps of this block are no padding."""
        if not self.is_uneven:
            return self.cut.block
        return valid_count(self.cut, self.shaped.sizes[self.over], self.here)

    @property
    def is_followed(self) -> Any:
        """Whether a block with steps comes behind this one: on this device where it turns, or else on any.

        What is merged only into a total that no block reads has a cotangent of 0, and times an infinity beside it that
        is NaN. Slopes of native monoids do not multiply: theirs may be read.
        """
        if self.monoid.native is not None:
            return True
        index, loops = self.here.index(self.cut.axes), in_time(self.cut.axes)
        follows = index > 0 if self.reverse else index < self.filled - 1
        if not loops:
            return follows
        turn = self.here.index(loops)
        return follows & (turn > 0 if self.reverse else turn < self.here.size(loops) - 1)

    def valid(self, leaf: Any, axis: int, behind: int = 0) -> Any:
        """For the places of a leaf of steps along `axis`, whether one and `behind` further ones are no padding."""
        count = vary(jnp.asarray(self.count), sorted(varying_axes(leaf)))
        return lax.broadcasted_iota(jnp.int32, leaf.shape, axis) < count - behind

    def masks(self, leaves: Sequence[Any], behind: int = 0) -> list[Any]:
        """`valid` of all leaves of steps."""
        pairs = zip(leaves, self.shaped.carrier, strict=True)
        return [self.valid(leaf, axes.index(self.over), behind) for leaf, axes in pairs]

    def last(self, leaves: Sequence[Any]) -> list[Any]:
        """The last of steps or prefixes that the scan meets, without the dimension; of a block without steps any."""
        carrier = self.shaped.carrier
        if self.reverse or not self.is_uneven:
            return last_of_block(carrier, self.over, list(leaves), self.reverse)
        at = jnp.maximum(self.count - 1, 0)
        pairs = zip(leaves, carrier, strict=True)
        return [lax.dynamic_index_in_dim(leaf, at, axes.index(self.over), keepdims=False) for leaf, axes in pairs]
