"""Writing what turns make: several boxes are under way while the next turns run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import numpy as np

from tapestry_jax.storage.protocols import Array, Box, Sink

MOST = 64 << 20
"""Bytes that are under way at once, by default; the box that goes beyond is waited for."""


class Writing:
    """Boxes that are being written, in order, as many as `most` bytes of them; a context that waits for them."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._bytes = most, 0
        self._under_way: deque[tuple[Future[None], Array]] = deque()
        self.written = 0

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.wait()

    def begin(self, sink: Sink, box: Box, array: Array) -> None:
        """Begin to write a box; waits for older ones where too much is under way.

        Raises:
          FormatError: where this or an older box cannot be written.
        """
        while self._under_way and self._bytes + array.nbytes > self._most:
            self._oldest()
        whole = np.ascontiguousarray(array)
        self._under_way.append((sink.write(box, whole), whole))
        self._bytes += whole.nbytes
        self.written += whole.nbytes

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
        future.result()
