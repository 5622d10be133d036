"""Writing what turns make: several boxes are under way while the next turns run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import numpy as np

from tapestry_jax.storage.protocols import Array, Box, Sink
from tapestry_jax.streaming.measured.metrics import Meter

MOST = 64 << 20
"""Bytes that are under way at once, by default; the box that goes beyond is waited for."""


class Writing:
    """Boxes that are being written, in order, as many as `most` bytes of them; a context that waits for them."""

    def __init__(self, meter: Meter, most: int = MOST) -> None:
        self._most, self._bytes, self._meter = most, 0, meter
        self._under_way: deque[tuple[Future[None], Array]] = deque()

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.wait()
            return
        # Nothing may be read from arrays that are gone.
        for future, _ in self._under_way:
            future.exception()

    def begin(self, sink: Sink, box: Box, array: Array) -> None:
        """Begin to write a box; waits for older ones where too much is under way.

        Raises:
          FormatError: where this or an older box cannot be written.
        """
        while self._under_way and self._bytes + array.nbytes > self._most:
            self._oldest()
        whole = np.ascontiguousarray(array)
        future = sink.write(box, whole)
        self._meter.under_way("write", (future,), whole.nbytes)
        self._under_way.append((future, whole))
        self._bytes += whole.nbytes

    def wait(self) -> None:
        """Return once all boxes are written."""
        while self._under_way:
            self._oldest()

    def flush(self, sinks: Iterable[Sink]) -> None:
        """Return once all boxes would survive the end of the process."""
        self.wait()
        for sink in sinks:
            sink.flush()

    def _oldest(self) -> None:
        future, array = self._under_way.popleft()
        self._bytes -= array.nbytes
        with self._meter.waiting("write"):
            future.result()
