"""Reading the pieces of a turn: boxes of what is stored, and what boundaries and padding add to them.

A box is read in place where its cells lie one behind the other in the piece; what lies outside of the tensor is then
copied from cells that were read. Only cells that are far away (the other end of a periodic axis) are read apart.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.protocols import Array, Box, Stored
from tapestry_jax.streaming.moving.views import Cells, Range, View

PATIENCE = 60.0
"""Seconds of waiting for one piece, after which a warning says for what."""


@dataclass(frozen=True)
class Run:
    """Cells one behind the other: `length` of them from `source` on go to the places from `place` on."""

    source: int
    place: int
    length: int


@dataclass(frozen=True, eq=False)
class Reading:
    """A piece that is being read.

    Attributes:
      piece: where it goes.
      copies: boxes that were read apart, with the indices of their places.
      fills: for each axis places and the places that they are copied from; -1 for zeros.
      futures: of the boxes.
      bytes: how many are read.
      where: they are read from, for people.
    """

    piece: Array
    copies: tuple[tuple[Array, tuple[slice, ...]], ...]
    fills: tuple[tuple[Cells, Cells], ...]
    futures: tuple[Future[None], ...]
    bytes: int
    where: str = ""

    def settle(self) -> None:
        """Return once nothing is written into the piece any more, whatever came of it."""
        for future in self.futures:
            future.exception()

    def wait(self) -> Array:
        """The piece, once all of it is there.

        Raises:
          FormatError: where something cannot be read.
        """
        for future in self.futures:
            _waited(future, self.where)
        for array, places in self.copies:
            self.piece[places] = array
        for axis, (places, sources) in enumerate(self.fills):
            if places.size:
                moved = np.moveaxis(self.piece, axis, 0)
                moved[places] = moved[np.maximum(sources, 0)]
                moved[places[sources < 0]] = np.zeros((), self.piece.dtype)
        return self.piece


def begin_reading(stored: Stored, wanted: View, piece: Array) -> Reading:
    """Begin to read what a view shows of a stored value.

    Args:
      stored: the value.
      wanted: the places of every axis.
      piece: of that many places, contiguous; filled when the reading is waited for.
    """
    if all(each.is_inside for each in wanted):
        box = tuple((each.start, each.stop) for each in wanted)
        return Reading(piece, (), (), (stored.read(box, piece),) if piece.size else (), piece.nbytes, stored.where)
    runs, fills = zip(*map(_runs, wanted), strict=True)
    copies: list[tuple[Array, tuple[slice, ...]]] = []
    futures: list[Future[None]] = []
    total = 0
    for chosen in itertools.product(*runs):
        box: Box = tuple((run.source, run.source + run.length) for run in chosen)
        places = tuple(slice(run.place, run.place + run.length) for run in chosen)
        part = piece[places]
        if not part.size:
            continue
        if not part.flags.c_contiguous:
            part = np.empty(part.shape, part.dtype)
            copies.append((part, places))
        futures.append(stored.read(box, part))
        total += part.nbytes
    return Reading(piece, tuple(copies), tuple(fills), tuple(futures), total, stored.where)


def _waited(future: Future[None], where: str) -> None:
    """Return once something is there; who waits long is told what for."""
    try:
        future.result(PATIENCE)
    except TimeoutError:
        # It may be what was raised where it was read.
        if not future.done():
            warnings.warn(f"nothing has come for {PATIENCE:g} s: {where}; the stream waits for it", stacklevel=2)
        future.result()


def _runs(wanted: Range) -> tuple[list[Run], tuple[Cells, Cells]]:
    """What is read of an axis, and the places that are filled from others."""
    low = min(max(0, -wanted.start), wanted.extent)
    high = max(low, min(wanted.extent, wanted.size - wanted.start))
    places = np.concatenate([np.arange(low, dtype=np.int64), np.arange(high, wanted.extent, dtype=np.int64)])
    cells = wanted.cells()
    asked = cells[places]
    near = (asked >= wanted.start + low) & (asked < wanted.start + high)
    sources = np.where(near, asked - wanted.start, -1)
    far = np.flatnonzero(~near & (asked >= 0))
    _, first, again = np.unique(asked[far], return_index=True, return_inverse=True)
    read = np.sort(places[far[first]])
    sources[far] = places[far[first]][again]
    filled = ~np.isin(places, read)
    main = [Run(wanted.start + low, low, high - low)] if high > low else []
    return [*main, *_joined(cells, read)], (places[filled], sources[filled])


def _joined(cells: Cells, places: Cells) -> Iterator[Run]:
    """Places as runs."""
    if not places.size:
        return
    breaks = np.flatnonzero((np.diff(places) != 1) | (np.diff(cells[places]) != 1)) + 1
    for group in np.split(places, breaks):
        yield Run(int(cells[group[0]]), int(group[0]), int(group.size))
