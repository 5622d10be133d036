"""Ctrl-C and SIGTERM while rows arrive: they end it at once, and every piece is a sign of life."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.launching.environment import HEARTBEAT
from tapestry_jax.streaming.kept.interrupts import Interrupted, Interrupts, heard

ROWS = np.arange(12, dtype=np.int32).reshape(6, 2)
LONG = 30.0


def job(rows: Any, folder: Path) -> tp.StreamJob:
    graph = tp.trace(tp.fold(tp.aggregators.Sum(), "row c -> c"), jax.ShapeDtypeStruct(ROWS.shape, ROWS.dtype))
    return tp.stream(graph, {"row": tp.chunks(size=2)}, rows, checkpoint=folder / "run")


def test_a_signal_does_not_wait_for_rows_that_arrive(tmp_path: Path):
    taken = list[int]()

    def slow() -> Iterator[Any]:
        for start in (0, 2, 4):
            taken.append(start)
            if start:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                time.sleep(LONG)
            yield ROWS[start : start + 2]

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="rows that arrive are kept once all have come: run the job again"):
        job(slow(), tmp_path).run()
    assert time.monotonic() - begun < LONG / 2 and taken == [0, 2]
    assert job(iter([ROWS]), tmp_path).run().tolist() == ROWS.sum(0).tolist()


def test_a_signal_between_rows_is_heard_before_the_next_and_behind_the_last(tmp_path: Path):
    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        for last in (2, 6):

            def rows(last: int = last) -> Iterator[Any]:
                for start in range(0, last, 2):
                    yield ROWS[start : start + 2]
                signal.raise_signal(signal.SIGTERM)
                time.sleep(LONG)

            with pytest.raises(SystemExit) as caught:
                job(rows(), tmp_path).run()
            assert caught.value.code == 143
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert job(iter([ROWS]), tmp_path).run().tolist() == ROWS.sum(0).tolist()


def test_what_was_sent_before_it_began_to_wait_is_heard():
    interrupts = Interrupts()
    interrupts.handle(signal.SIGINT, None)
    with pytest.raises(Interrupted, match="now"), interrupts.at_once("now"):
        raise AssertionError
    with pytest.raises(KeyboardInterrupt):
        interrupts.handle(signal.SIGINT, None)


def test_outside_of_waiting_it_is_noted_alone():
    with heard() as interrupts:
        with interrupts.at_once("now"):
            pass
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.number == signal.SIGTERM


def test_rows_that_arrive_are_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    life, beats = tmp_path / "life", list[float]()
    life.touch()
    monkeypatch.setenv(HEARTBEAT, str(life))

    def rows() -> Iterator[Any]:
        for start in (0, 2, 4):
            beats.append(life.stat().st_mtime)
            os.utime(life, (0, 0))
            yield ROWS[start : start + 2]

    job(rows(), tmp_path).run()
    assert len(beats) == 3 and 0.0 not in beats
