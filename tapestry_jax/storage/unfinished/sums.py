"""A checksum of the boxes that were written, in whatever order, which is found again where they are read again.

Every box has one of its own, of its place and of its bytes, and the exclusive or of these is that of all. So nothing is
kept of a single box: those of one shape that touch are told as one, which is cut into boxes of that shape again.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock

import numpy as np

from combinators.errors import FormatError, message
from tapestry_jax.storage.boxes import check_box, count, shape_of, told
from tapestry_jax.storage.dtypes import as_bytes
from tapestry_jax.storage.protocols import Array, Box, Sink, Stored
from tapestry_jax.storage.unfinished.filled import Filled

Read = Callable[[Box, Array], Future[None]]
"""As `Stored.read`."""
_AT_ONCE = 4 << 20
"""Bytes that are read again at once, or a chunk that is larger."""


class Sums:
    """The checksum of what is written of a tensor, box by box, each once. Threads may add to it.

    Args:
      shape: of the tensor.
      total: the checksum of what was written before.
      boxes: what was written before, by the shape of the boxes.
    """

    def __init__(
        self, shape: tuple[int, ...], total: int = 0, boxes: Mapping[tuple[int, ...], Filled] | None = None
    ) -> None:
        self._shape, self._total, self._lock = shape, total, Lock()
        self._boxes = dict(boxes or {})

    def add(self, box: Box, array: Array) -> None:
        """A box is written; a second time, it is no longer known what lies there, and found to be damaged."""
        own = _sum_of(box, [array])
        with self._lock:
            self._total ^= own
            self._boxes.setdefault(shape_of(box), Filled(self._shape)).add(box)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._boxes

    @property
    def text(self) -> str:
        """The checksum, for people."""
        return f"{self._total:064x}"

    def boxes(self) -> str:
        """What was written, for people."""
        with self._lock:
            found = [told(box) for own in self._boxes.values() for box in own.boxes()]
        return ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")

    def to_arrays(self) -> tuple[Array, Array]:
        """What was written, a row each of sizes, starts and stops, and the checksum."""
        with self._lock:
            rows = [
                [*sizes, *itertools.chain.from_iterable(box)]
                for sizes, own in self._boxes.items()
                for box in own.boxes()
            ]
            own_sum = np.frombuffer(self._total.to_bytes(32, "big"), np.uint8)
        return np.array(rows, np.int64).reshape(len(rows), 3 * len(self._shape)), own_sum

    def again(self, tensor: Sink | Stored, read: Read, pause: Callable[[], None]) -> Sums:
        """The same boxes with the checksum of what lies there now.

        Args:
          tensor: what is read.
          read: reads a box of it.
          pause: called before every piece that is read.

        Raises:
          FormatError: where it cannot be read.
        """

        def parts(box: Box) -> Iterator[Array]:
            for each in _slabs(box, most, tensor.chunks):
                pause()
                into = np.empty(shape_of(each), tensor.dtype)
                read(each, into).result()
                yield into

        size, chunk = count(self._shape), count(tensor.chunks)
        most, total = max(_AT_ONCE // tensor.dtype.itemsize, chunk if chunk < size else 1), 0
        for sizes, own in self._boxes.items():
            for box in (part for region in own.boxes() for part in _cut(region, sizes)):
                total ^= _sum_of(box, parts(box))
        return Sums(self._shape, total, self._boxes)


def read_sums(rows: Array, own_sum: Array, shape: tuple[int, ...], where: str) -> Sums:
    """What `to_arrays` gave.

    Raises:
      FormatError: for anything else.
    """
    rank, boxes = len(shape), dict[tuple[int, ...], Filled]()
    if (rows.dtype, rows.shape[1:], own_sum.dtype, own_sum.shape) != (np.int64, (3 * rank,), np.uint8, (32,)):
        raise _unreadable(where, f"{rows.dtype.name} {rows.shape} and {own_sum.dtype.name} {own_sum.shape}")
    for row in rows.tolist():
        sizes, ends = tuple(row[:rank]), row[rank:]
        box = check_box(zip(ends[::2], ends[1::2], strict=True), shape, where)
        if not all(size > 0 and own % size == 0 for size, own in zip(sizes, shape_of(box), strict=True)):
            raise _unreadable(where, f"boxes of {sizes} in {told(box)}")
        boxes.setdefault(sizes, Filled(shape)).add(box)
    return Sums(shape, int.from_bytes(own_sum.tobytes(), "big"), boxes)


def _unreadable(where: str, got: str) -> FormatError:
    headline = f"what a state says is written of `{where}` cannot be read"
    return FormatError(message(headline, f"got {got}", remedy="Name another folder to begin anew."))


def _sum_of(box: Box, parts: Iterable[Array]) -> int:
    """Of the place of a box, and of its cells in C order."""
    digest = hashlib.sha256(told(box).encode())
    for part in parts:
        digest.update(as_bytes(np.ascontiguousarray(part)))
    return int.from_bytes(digest.digest(), "big")


def _cut(region: Box, sizes: tuple[int, ...]) -> Iterator[Box]:
    """The boxes of one shape that a region is made of."""
    axes = zip(region, sizes, strict=True)
    yield from itertools.product(*([(at, at + size) for at in range(*ends, size)] for ends, size in axes))


def _slabs(box: Box, most: int, chunks: Sequence[int]) -> Iterator[Box]:
    """Parts of a box of `most` cells or fewer that follow each other in it; chunks as a whole where they fit."""
    sizes = shape_of(box)
    axis = next((axis for axis, size in enumerate(sizes) if size > 1), None)
    if axis is None:
        yield box
        return
    before, (start, stop), behind = box[:axis], box[axis], box[axis + 1 :]
    inner = count(sizes[axis + 1 :])
    step = max(1, most // inner)
    step -= step % chunks[axis] if step >= chunks[axis] else 0
    for at in range(start, stop, step):
        part = (*before, (at, min(stop, at + step)), *behind)
        if inner > most:
            yield from _slabs(part, most, chunks)
        else:
            yield part
