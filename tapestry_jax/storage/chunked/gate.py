"""What bounds the memory of TensorStore: boxes are begun chunk by chunk, and few bytes are under way at once.

TensorStore begins all chunks of a box together, and files are read faster than chunks are decoded: a box of 32 chunks
was seen to take 25 of them beside the array that it is read into. Its own limits are of threads, and hold none of that
back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

from combinators.errors import FormatError
from tapestry_jax.storage.protocols import Beside, Box

UNDER_WAY = 4 << 20
"""Bytes of chunks that are under way at once for each tensor; one chunk is in any case."""
_BESIDE = 7
"""Measured: so many times the bytes under way are taken: encoded, checked, decoded, and not yet given back."""


def of_chunks(chunk_bytes: int, total: int) -> Beside:
    """What a tensor of `total` bytes takes at most beside the arrays that it is read into or written from."""
    least = min(UNDER_WAY, total)
    less = "Store it in smaller chunks." if chunk_bytes > least else "Store it as .npy, which needs nothing beside."
    return Beside(_BESIDE * max(least, chunk_bytes), "chunks that are encoded and decoded", less)


def pieces(box: Box, chunks: Sequence[int], itemsize: int, most: int = UNDER_WAY // 2) -> Iterator[tuple[Box, int]]:
    """A box in boxes that touch at most `most` bytes of chunks, or one chunk; each with the bytes of its chunks.

    Args:
      box: start and stop along every axis.
      chunks: the sizes that are stored in one piece.
      itemsize: bytes of a cell.
      most: bytes.
    """
    counts = [-(-stop // size) - start // size for (start, stop), size in zip(box, chunks, strict=True)]
    cost = math.prod(counts) * math.prod(chunks) * itemsize
    axis = next((axis for axis, count in enumerate(counts) if count > 1), None)
    if cost <= most or axis is None:
        yield box, cost
        return
    start, stop = box[axis]
    middle = (start // chunks[axis] + counts[axis] // 2) * chunks[axis]
    for half in ((start, middle), (middle, stop)):
        yield from pieces((*box[:axis], half, *box[axis + 1 :]), chunks, itemsize, most)


class Gate:
    """Lets begin what fits into `most` bytes under way, in order; one piece is let through in any case."""

    def __init__(self, most: int = UNDER_WAY) -> None:
        self._most, self._bytes, self._lock, self._is_beginning = most, 0, Lock(), False
        self._waiting = deque[tuple[int, Callable[[], Any], Callable[[Any], None]]]()

    def begin(
        self,
        parts: Sequence[tuple[int, Callable[[], Any]]],
        error: Callable[[Exception], FormatError],
        check: Callable[[], None],
    ) -> Future[None]:
        """A future of several parts; each part has its bytes, and begins as a future of TensorStore.

        Args:
          parts: what is begun.
          error: what an error of TensorStore is raised as.
          check: runs when all is done well, before the future says so; it raises where what was read is wrong.
        """
        ours: Future[None] = Future()
        ours.set_running_or_notify_cancel()
        left, errors = len(parts), list[Exception]()

        def finish(part: Any) -> None:
            nonlocal left
            found = _error_of(part)
            with self._lock:
                left -= 1
                errors.extend([] if found is None else [found])
                is_last = left == 0
            if is_last:
                _settle(ours, errors, error, check)

        with self._lock:
            self._waiting.extend((cost, begin, finish) for cost, begin in parts)
        if not parts:
            _settle(ours, errors, error, check)
        self._go_on()
        return ours

    def _go_on(self) -> None:
        """Begin what waits and fits. Only one thread does: what is done at once would begin the next in itself."""
        while True:
            with self._lock:
                if self._is_beginning or not self._waiting:
                    return
                cost, begin, finish = self._waiting[0]
                if self._bytes and self._bytes + cost > self._most:
                    return
                self._waiting.popleft()
                self._bytes += cost
                self._is_beginning = True
            try:
                self._begin(cost, begin, finish)
            finally:
                with self._lock:
                    self._is_beginning = False

    def _begin(self, cost: int, begin: Callable[[], Any], finish: Callable[[Any], None]) -> None:
        def done(part: Any) -> None:
            with self._lock:
                self._bytes -= cost
            finish(part)
            self._go_on()

        try:
            part = begin()
        except Exception as found:  # noqa: BLE001 - whatever it is, who waits for the future has to get it
            done(found)
        else:
            part.add_done_callback(done)


def _error_of(part: Any) -> Exception | None:
    if isinstance(part, Exception):
        return part
    try:
        part.result()
    except Exception as found:  # noqa: BLE001 - as above
        return found
    return None


def _settle(
    ours: Future[None],
    errors: Sequence[Exception],
    error: Callable[[Exception], FormatError],
    check: Callable[[], None],
) -> None:
    try:
        if errors:
            raise errors[0]
        check()
    except FormatError as found:
        ours.set_exception(found)
    except Exception as found:  # noqa: BLE001 - as above
        ours.set_exception(error(found))
    else:
        ours.set_result(None)
