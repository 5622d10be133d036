"""Rows that do not come: who waits is told for what, and Ctrl-C ends the run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.moving import reading
from tapestry_jax.streaming.moving.making import Making

X = np.arange(24, dtype=np.int32).reshape(8, 3)
OVER = {"row": tp.chunks(size=2)}


def _sum() -> Any:
    return tp.trace(tp.fold(tp.aggregators.Sum(), "row c -> c"), X)


class Blocked:
    """Rows of which the last do not come before somebody says so; each run begins anew."""

    def __init__(self) -> None:
        self.reached, self.free = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[Any]:
        yield X[:3]
        self.reached.set()
        self.free.wait(60)
        yield X[3:]


def test_ctrl_c_ends_a_run_whose_rows_do_not_come_and_the_next_one_is_right() -> None:
    rows = Blocked()
    job = tp.stream(_sum(), OVER, rows)

    def interrupt() -> None:
        rows.reached.wait(60)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert time.monotonic() - began < 30  # 60 s where the rows are waited for
    # The old thread wakes up while the new run reads.
    rows.free.set()
    np.testing.assert_array_equal(job.run(), X.sum(0))


def test_who_waits_long_is_told_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 0.05)
    rows = Blocked()

    def free() -> None:
        rows.reached.wait(60)
        time.sleep(0.3)
        rows.free.set()

    threading.Thread(target=free).start()
    with pytest.warns(
        UserWarning, match=r"nothing has come for 0\.05 s: rows that arrive for `x`; the stream waits for"
    ):
        found = tp.stream(_sum(), OVER, rows).run()
    np.testing.assert_array_equal(found, X.sum(0))


def test_a_timeout_of_what_makes_rows_is_its_failure() -> None:
    def rows() -> Iterator[Any]:
        yield X[:3]
        raise TimeoutError("no answer")

    with pytest.raises(StreamError, match=r"(?s)what makes the rows of `x` has failed.*no answer"):
        tp.stream(_sum(), OVER, rows()).run()


def test_calls_run_in_order_and_what_is_left_fails() -> None:
    order, begun, gate = list[int](), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        gate.wait(60)
        order.append(2)

    making = Making("rows")
    making.submit(lambda: order.append(1)).result(10)
    blocked, behind = making.submit(slow), making.submit(lambda: order.append(3))
    begun.wait(60)
    making.leave()
    for future in (blocked, behind, making.submit(lambda: order.append(4))):
        with pytest.raises(StreamError, match="rows: the run has ended before they came"):
            future.result(10)
    gate.set()
    making._thread.join(60)  # pyright: ignore[reportPrivateUsage]
    assert order == [1, 2]


def test_what_a_call_raises_its_future_does() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    making = Making("rows")
    with pytest.raises(ZeroDivisionError):
        making.submit(fail).result(10)
    making.end()
