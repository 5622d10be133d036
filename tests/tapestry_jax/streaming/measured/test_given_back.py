"""What was freed goes back to the system where a run is above what it holds, and only there."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.measured import metrics
from tapestry_jax.streaming.measured.given_back import give_back, trimming
from tapestry_jax.streaming.measured.metrics import Meter


@pytest.mark.parametrize(("room", "count"), [(None, 0), (99, 1), (100, 0)])
def test_memory_beyond_what_is_held_is_given_back(monkeypatch: pytest.MonkeyPatch, room: int | None, count: int):
    found, calls = iter([1000, 1100]), list[int]()
    monkeypatch.setattr(metrics, "resident", lambda: next(found))
    monkeypatch.setattr(metrics, "give_back", lambda: calls.append(1))
    meter = Meter(room)
    meter.ended()
    assert (len(calls), meter.metrics().memory) == (count, 100)


def test_a_job_under_a_limit_gives_back_what_is_beyond_its_plan_without_what_was_freed(monkeypatch: pytest.MonkeyPatch):
    rooms = list[int | None]()
    monkeypatch.setattr("tapestry_jax.streaming.jobs.job.Meter", lambda room: rooms.append(room) or Meter(room))
    program, x = tp.Map(lambda a: a + 1, "row -> row"), np.arange(4000, dtype=np.float32)
    for memory in (None, "1MiB"):
        job = tp.stream(program, {"row": tp.chunks(size=100)}, x, memory=memory)
        job.run()
    rows = {row.name: row.bytes for row in job.plan().rows}
    assert rows["freed"] > 0
    assert rooms == [None, job.plan().total - rows["freed"]]


def test_giving_back_is_no_error_where_nothing_is_known_of_it(monkeypatch: pytest.MonkeyPatch):
    give_back()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    trimming.cache_clear()
    try:
        give_back()
    finally:
        trimming.cache_clear()
