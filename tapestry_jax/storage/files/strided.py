"""A box of a tensor whose cells lie at fixed strides in bytes: rows, columns, either order, either byte order.

Runs that lie in the file as they lie in the buffer are read straight into it. What lies apart is read with what lies
between, through a small buffer, as long as that is not much more than what is wanted: a disk reads whole pages anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.dtypes import as_bytes
from tapestry_jax.storage.files.ranges import Ranges
from tapestry_jax.storage.protocols import Array, Box

_MOST_BETWEEN = 2**20
"""Bytes of the small buffer, which stays in a cache of the processor."""
_PAGE = 4096


@dataclass(frozen=True)
class Layout:
    """Where the cells of a tensor lie in bytes.

    Attributes:
      offset: of the first cell.
      strides: in bytes, one for every axis; none is negative.
      dtype: as it is stored, perhaps in the other byte order.
    """

    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], *, fortran: bool = False) -> Layout:
        """Cells that follow each other, the last axis fastest; the first where `fortran` is said."""
        strides, step = list[int](), dtype.itemsize
        for size in shape if fortran else reversed(shape):
            strides.append(step)
            step *= max(1, size)
        return cls(offset, tuple(strides if fortran else reversed(strides)), dtype)

    def at(self, box: Box) -> int:
        """Where the first cell of a box lies."""
        return self.offset + sum(start * step for (start, _), step in zip(box, self.strides, strict=True))


def read_box(source: Ranges, layout: Layout, box: Box, into: Array) -> None:
    """Read a box into an array of its shape and, but for the byte order, its dtype.

    Raises:
      FormatError: where the source has fewer bytes.
    """
    if into.size:
        spanned = _spanned(layout, into.shape)
        _read(source, layout, layout.at(box), into, np.empty(min(spanned, _MOST_BETWEEN), np.uint8))


def between(layout: Layout, sizes: tuple[int, ...]) -> int:
    """Bytes of the small buffer that a box of such sizes is read through; 0 where it lies as it is read."""
    spanned = _spanned(layout, sizes)
    ours = Layout.of(0, sizes, layout.dtype).strides
    alike = all(size == 1 or a == b for size, a, b in zip(sizes, ours, layout.strides, strict=True))
    is_run = spanned == math.prod(sizes) * layout.dtype.itemsize
    return 0 if is_run and alike and layout.dtype.isnative else min(spanned, _MOST_BETWEEN)


def touched(layout: Layout, sizes: tuple[int, ...]) -> int:
    """Bytes of whole pages in which the cells of a box lie, at most."""
    cells = math.prod(sizes) * layout.dtype.itemsize
    return min(_spanned(layout, sizes), cells + _PAGE * _runs(layout, sizes)) + _PAGE if cells else 0


def parts(layout: Layout, box: Box, most: int) -> Iterator[tuple[Box, int, int]]:
    """A box in boxes that touch few bytes of pages, each with where it begins and how far it reaches."""
    sizes = tuple(stop - start for start, stop in box)
    axis = max(((step, axis) for axis, step in enumerate(layout.strides) if sizes[axis] > 1), default=(0, -1))[1]
    if touched(layout, sizes) <= most or axis < 0:
        yield box, layout.at(box), _spanned(layout, sizes)
        return
    start, stop = box[axis]
    middle = (start + stop) // 2
    for half in ((start, middle), (middle, stop)):
        yield from parts(layout, (*box[:axis], half, *box[axis + 1 :]), most)


def _read(source: Ranges, layout: Layout, start: int, into: Array, buffer: Array) -> None:
    wanted, spanned = into.nbytes, _spanned(layout, into.shape)
    is_run = spanned == wanted
    if is_run and layout.dtype.isnative and _lies_alike(layout, into):
        source.read(start, as_bytes(into))
    elif spanned <= _MOST_BETWEEN and spanned <= max(_PAGE * _runs(layout, into.shape), 16 * wanted):
        between = buffer[:spanned]
        source.read(start, as_bytes(between))
        into[...] = np.ndarray(into.shape, layout.dtype, between, 0, layout.strides)
    else:
        for step, part in _halves(layout, into):
            _read(source, layout, start + step, part, buffer)


def _spanned(layout: Layout, shape: tuple[int, ...]) -> int:
    """Bytes from the first cell of a box to the end of its last."""
    return layout.dtype.itemsize + sum((size - 1) * step for size, step in zip(shape, layout.strides, strict=True))


def _runs(layout: Layout, shape: tuple[int, ...]) -> int:
    """How many pieces of the file the cells of a box make."""
    length, found = layout.dtype.itemsize, 1
    for step, size in sorted(zip(layout.strides, shape, strict=True)):
        if size > 1 and step != length:
            found *= size
        elif found == 1:
            length *= size
    return found


def _lies_alike(layout: Layout, into: Array) -> bool:
    return into.flags.c_contiguous and all(
        size == 1 or ours == theirs for size, ours, theirs in zip(into.shape, into.strides, layout.strides, strict=True)
    )


def _halves(layout: Layout, into: Array) -> Iterator[tuple[int, Array]]:
    """Both halves along the axis whose cells lie farthest apart, with the bytes from the first cell to theirs."""
    axis = max((step, axis) for axis, step in enumerate(layout.strides) if into.shape[axis] > 1)[1]
    middle = into.shape[axis] // 2
    before: tuple[slice, ...] = (slice(None),) * axis
    yield 0, into[(*before, slice(None, middle))]
    yield middle * layout.strides[axis], into[(*before, slice(middle, None))]
