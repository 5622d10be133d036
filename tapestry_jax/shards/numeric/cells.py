"""Which cells blocks hold and read, one by one and axis by axis, and where they lie in the arrays of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from combinators.index_space.axis import Axis
from combinators.index_space.box import Box
from combinators.index_space.projection import Projection
from tapestry_jax.shards.ranges import Intervals, Point, Range, answered

Cells = tuple[int, ...]
"""Along one axis, in order."""


def cross(cells: Sequence[Cells]) -> tuple[Any, ...]:
    """What takes some cells along each axis."""
    return np.ix_(*cells) if cells else ()


def cells_of(own: Range, point: Point, size: int) -> Cells:
    """The cells of the tensor that a range holds on a device, those that a boundary answers too, in order."""
    return _cells(own, own.start(point), size)


@lru_cache(maxsize=1 << 16)
def _cells(own: Range, start: int, size: int) -> Cells:
    # What a device holds follows from where its range starts.
    held = replace(own, low=start, steps=()).held({})
    if own.wraps and not own.deal:
        # In the order of its indices, of which those at the other end come first.
        return tuple(cell % size for low, high in held for cell in range(low, high))
    parts: Intervals = held if own.deal else answered(held, size, own.mode)
    return tuple(cell for low, high in parts for cell in range(low, high))


@lru_cache(maxsize=1 << 16)
def in_common(wanted: Cells, have: Cells) -> tuple[Cells, Cells]:
    """Where cells that are had lie among the wanted ones, where some stand twice, and where among themselves."""
    place = {cell: at for at, cell in enumerate(have)}
    here = [(at, place[cell]) for at, cell in enumerate(wanted) if cell in place]
    return tuple(at for at, _ in here), tuple(at for _, at in here)


def indices_of(own: Range, point: Point) -> list[int]:
    """The indices of a dimension on a device, those of neighbours too."""
    if own.deal:
        return [cell for low, high in own.held(point) for cell in range(low, high)]
    low, high = own.indices(point)
    return list(range(low, high))


def cells_read(axis: Axis, dims: Mapping[str, Range], sizes: Mapping[str, int], size: int, point: Point) -> Cells:
    """The cells that an index box reads along one axis, those outside of the tensor too."""
    names = tuple(name for name in axis.names if name in dims)
    if len(names) < len(axis.names) or not names:
        return tuple(range(size))
    if any(dims[name].deal for name in names):
        return tuple(indices_of(dims[names[0]], point))
    known = tuple((name, sizes[name]) for name in axis.names)
    return _reached(axis, known, tuple(dims[name].indices(point) for name in names))


@lru_cache(maxsize=1 << 16)
def _reached(axis: Axis, sizes: tuple[tuple[str, int], ...], parts: Intervals) -> Cells:
    row = Projection.from_axes((axis,), [name for name, _ in sizes], dict(sizes))
    box = row.project_box(Box(tuple(low for low, _ in parts), tuple(high for _, high in parts)))
    return tuple(range(box.start[0], box.stop[0]))


@lru_cache(maxsize=1 << 16)
def places_among(wanted: Cells, cells: Cells, size: int, mode: str) -> tuple[Cells | None, int | None]:
    """Where wanted cells lie among those held, one place behind for nothing; and the first that is not there.

    None for the places where the wanted ones are those held, in order.
    """
    if wanted == cells:
        return None, None
    place = {cell: at for at, cell in enumerate(cells)}
    index: list[int] = []
    for position in wanted:
        (answer,) = _answer(position, size, mode) or (None,)
        if answer is not None and answer not in place:
            return None, answer
        index.append(len(cells) if answer is None else place[answer])
    return tuple(index), None


def _answer(position: int, size: int, mode: str) -> Cells:
    parts = answered([(position, position + 1)], size, mode)
    return (parts[0][0],) if parts else ()
