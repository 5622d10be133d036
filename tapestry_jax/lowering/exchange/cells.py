"""Sharing out the cells of a block of states over devices, and putting them together again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.merging.blocks import Axes, shared_axes
from tapestry_jax.lowering.on_device.pad import crop_axis, pad_axis
from tapestry_jax.lowering.on_device.varying import received, vary
from tapestry_jax.planning.folding.ordered import share


@dataclass(frozen=True)
class Cells:
    """The cells of a block of states in one row, cut in equal shares.

    Attributes:
      carrier: the axes of the leaves of the block.
      shapes: their shapes.
      axes: the mesh axes whose devices take the shares, the outermost first.
      devices: how many there are.
    """

    carrier: tuple[Axes, ...]
    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[str, ...]
    devices: int

    @property
    def shared(self) -> Axes:
        """The dimensions whose cells are shared out."""
        return shared_axes(self.carrier)

    @property
    def row(self) -> tuple[Axes, ...]:
        """The axes of the leaves of a share: one dimension for all cells, then a cell's own."""
        return tuple(("cell", *(a for a in axes if a not in self.shared)) for axes in self.carrier)

    def trade(self, leaf: int, value: Any) -> Any:
        """Every device's states of this device's share: `(devices, share, ...)`, in the order of the mesh."""
        return self._exchange(self._shares(leaf, value))

    def own(self, leaf: int, value: Any) -> Any:
        """The same of a leaf that all devices have alike; nothing is sent."""
        piece = self._shares(leaf, value)[lax.axis_index(self.axes)]
        return jnp.broadcast_to(piece, (self.devices, *piece.shape))

    def hand_out(self, leaf: int, value: Any) -> Any:
        """The block of all cells, the same on every device, from this device's share of it."""
        return self._block(
            leaf, received(lax.all_gather(vary(value, self.axes), self.axes, axis=0, tiled=True, to="invarying"))
        )

    def trade_back(self, leaf: int, values: Any) -> Any:
        """This device's block, from the shares `(devices, share, ...)` that every device has made of every block."""
        back = self._exchange(values)
        return self._block(leaf, back.reshape(-1, *back.shape[2:]))

    def _shares(self, leaf: int, value: Any) -> Any:
        moved = jnp.moveaxis(value, self._positions(leaf), range(len(self.shared)))
        own, block = moved.shape[len(self.shared) :], share(self._count, self.devices)
        flat = pad_axis(moved.reshape(self._count, *own), 0, block * self.devices)
        return flat.reshape(self.devices, block, *own)

    @property
    def _count(self) -> int:
        return math.prod(self.shapes[0][self.carrier[0].index(axis)] for axis in self.shared)

    def _positions(self, leaf: int) -> tuple[int, ...]:
        return tuple(self.carrier[leaf].index(axis) for axis in self.shared)

    def _exchange(self, value: Any) -> Any:
        return received(lax.all_to_all(vary(value, self.axes), self.axes, split_axis=0, concat_axis=0))

    def _block(self, leaf: int, row: Any) -> Any:
        positions, shape = self._positions(leaf), self.shapes[leaf]
        moved = crop_axis(row, 0, self._count).reshape(*(shape[at] for at in positions), *row.shape[1:])
        return jnp.moveaxis(moved, range(len(positions)), positions)


def cells_of(carrier: Sequence[Axes], state: Sequence[Any], axes: tuple[str, ...], devices: int) -> Cells:
    """The cells of the block `state`, shared out over the devices of `axes`."""
    return Cells(tuple(carrier), tuple(tuple(leaf.shape) for leaf in state), axes, devices)
