"""Writing holds the loop back by bytes: what is begun beyond them waits for what is under way."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.writing import Writing


class _Pending(Future[None]):
    """Done when somebody waits for it, as late as can be."""

    def __init__(self, sink: _Slow, size: int) -> None:
        super().__init__()
        self._sink, self._size = sink, size

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            self._sink.under_way -= self._size
            self.set_result(None)


class _Slow:
    """A sink that has written nothing before it is waited for."""

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.written: list[Any] = []

    def write(self, box: Any, array: Any) -> Future[None]:
        self.under_way += array.nbytes
        self.most = max(self.most, self.under_way)
        self.written.append(box)
        return _Pending(self, array.nbytes)


def test_no_more_bytes_are_under_way_than_are_allowed() -> None:
    sink: Any = _Slow()
    sizes = [30, 50, 40, 100, 10, 250, 20]
    with Writing(Meter(), most=100) as writing:
        for size in sizes:
            writing.begin(sink, size, np.zeros(size, np.uint8))
    # One that is larger than all that is allowed goes alone.
    assert sink.most == 250 and sink.written == sizes and sink.under_way == 0
    few: Any = _Slow()
    with Writing(Meter(), most=100) as writing:
        for size in sizes[:5]:
            writing.begin(few, size, np.zeros(size, np.uint8))
    assert few.most == 100 and few.under_way == 0
