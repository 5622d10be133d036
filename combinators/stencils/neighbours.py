"""Cells and their neighbours: what a function of one cell reads of the blocks around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.errors import KernelError, message
from combinators.frozen import dataclass

Offsets = tuple[int, ...]
Side = str | int | float | None
"""What answers outside of one end: `one-sided`, `edge`, `reflect`, a number; None where the block has the cells."""


@dataclass(frozen=True)
class Field:
    """How one operand lies.

    Attributes:
      axes: for each of its axes the axis of the result that it is; empty for a scalar.
      low: of each dimension of the stencil the first offset that its block has.
      high: the last one.
    """

    axes: tuple[int, ...]
    low: Offsets
    high: Offsets


@dataclass(frozen=True)
class Ends:
    """What answers outside of a dimension, cell by cell.

    Attributes:
      size: of the dimension.
      low: below 0.
      high: from `size` on.
    """

    size: int
    low: Side
    high: Side


class Neighbours:
    """A tensor around every cell: `u[-1, 0]`, `u.at(x=-1)`, `u.here`."""

    def __init__(self, dims: Sequence[str], read: Callable[[Offsets], Any]) -> None:
        self._dims, self._read = tuple(dims), read

    def __getitem__(self, offsets: Any) -> Any:
        """The neighbour at these offsets, in the order in which the stencil names its dimensions."""
        return self._read(tuple(offsets) if isinstance(offsets, tuple) else (offsets,))

    def at(self, **offsets: int) -> Any:
        """The neighbour at offsets along the dimensions that are named; 0 along the others."""
        unknown = offsets.keys() - {*self._dims}
        if unknown:
            raise KernelError(
                message(
                    f"a stencil over {', '.join(self._dims)} has no dimension `{min(unknown)}`",
                    remedy="Name the dimensions of its reach.",
                )
            )
        return self._read(tuple(offsets.get(dim, 0) for dim in self._dims))

    def __repr__(self) -> str:
        return f"Neighbours({', '.join(self._dims)})"

    @property
    def here(self) -> Any:
        """The cell itself."""
        return self._read((0,) * len(self._dims))


@dataclass(frozen=True)
class StencilKernel:
    """A function of cells and their neighbours, on blocks.

    Attributes:
      cell: takes a `Neighbours` for each field, and scalars; gives a cell, or a tuple of some.
      dims: of the stencil.
      places: of each of them, the axis of the result.
      fields: how each operand lies.
      rank: of the result.
      ends: of dimensions that are answered here; their coordinates are further operands, in this order.
    """

    cell: Callable[..., Any]
    dims: tuple[str, ...]
    places: tuple[int, ...]
    fields: tuple[Field, ...]
    rank: int
    ends: tuple[tuple[str, Ends], ...] = ()

    def __call__(self, *blocks: Any) -> Any:
        """The cells of a block."""
        arrays, told = blocks[: len(self.fields)], blocks[len(self.fields) :]
        at = {dim: coordinate for (dim, _), coordinate in zip(self.ends, told, strict=True)}
        return self.cell(*(self._around(*pair, at) for pair in zip(self.fields, arrays, strict=True)))

    def _around(self, field: Field, block: Any, at: dict[str, Any]) -> Any:
        if not field.axes:
            return block
        order = sorted(range(len(field.axes)), key=field.axes.__getitem__)
        block = jnp.transpose(block, order)
        block = jnp.expand_dims(block, [axis for axis in range(self.rank) if axis not in field.axes])
        return Neighbours(self.dims, lambda offsets: self._read(field, block, at, offsets, 0))

    def _read(self, field: Field, block: Any, at: dict[str, Any], offsets: Offsets, number: int) -> Any:
        """The neighbours at some offsets; the dimensions before `number` are inside."""
        if number == len(self.dims):
            return self._slice(field, block, offsets)
        dim, own = self.dims[number], offsets[number]

        def moved(offset: int) -> Any:
            return self._read(field, block, at, (*offsets[:number], offset, *offsets[number + 1 :]), number + 1)

        value = moved(own)
        ends = dict(self.ends).get(dim)
        side = None if ends is None or own == 0 else ends.low if own < 0 else ends.high
        if ends is None or side is None:
            return value
        coordinate = at[dim].reshape([-1 if axis == self.places[number] else 1 for axis in range(self.rank)])
        inward = coordinate if own < 0 else ends.size - 1 - coordinate
        if not isinstance(side, str):
            return jnp.where(inward < abs(own), jnp.asarray(side, value.dtype), value)
        step = 1 if own < 0 else -1
        for inside in range(abs(own)):
            value = jnp.where(inward == inside, _answer(side, moved, inside, abs(own) - inside, step), value)
        return value

    def _slice(self, field: Field, block: Any, offsets: Offsets) -> Any:
        for axis, offset, low, high in zip(self.places, offsets, field.low, field.high, strict=True):
            if low or high:
                # A block without cells may be empty, or as wide as the window less one.
                cells = max(block.shape[axis] - (high - low), 0)
                start = min(offset - low, block.shape[axis])
                block = lax.slice_in_dim(block, start, start + cells, axis=axis)
        return block


def _answer(side: str, moved: Callable[[int], Any], inside: int, beyond: int, step: int) -> Any:
    """A cell `beyond` an end, read from a cell that is `inside` by so many."""
    last = moved(-step * inside)
    if side == "edge":
        return last
    if side == "reflect":
        return moved(step * (beyond - inside))
    return last + beyond * (last - moved(step * (1 - inside)))
