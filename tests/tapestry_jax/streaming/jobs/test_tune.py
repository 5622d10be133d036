"""Chunks and prefetch that are chosen by trials: the rule, what is tried, and that nothing else is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import stored
from tapestry_jax.streaming.jobs import tune as tuning
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.jobs.trial import cells_a_second
from tapestry_jax.streaming.jobs.tune import Tried, chosen
from tapestry_jax.streaming.moving.sinks import write_whole
from tapestry_jax.streaming.running import AHEAD
from tests.tapestry_jax.streaming.jobs.test_job import centred

agg = tp.aggregators
X = np.random.default_rng(0).integers(-9, 9, (1009, 4)).astype(np.int32)
largest = tp.fold(agg.Max(), "row c -> c")


def by_size(job: Job, amount: int) -> float:
    """Rates that are known: the larger the faster, up to 64 cells, and reading ahead helps nothing."""
    del amount
    return float(min(job.split.passes[0].block, 64))


def test_of_those_as_fast_the_one_of_least_memory_is_taken() -> None:
    slow, fast = Tried(1, 0, 50.0, 1), Tried(64, 0, 100.0, 900)
    near, nearer = Tried(32, 0, 96.0, 500), Tried(16, 8, 95.5, 500)
    for order in ([slow, fast, near, nearer], [nearer, near, fast, slow]):
        assert chosen(order) is nearer
    assert chosen([slow, fast]) is fast


def test_the_choice_follows_from_the_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "cells_a_second", by_size)
    tuned = tp.tune(largest, "row", X)
    rates = {each.size: each.rate for each in tuned.tried}
    assert len(rates) > 2 and max(rates.values()) == 64
    assert tuned.chosen == chosen(tuned.tried)
    assert tuned.options == {"over": {"row": tp.chunks(size=tuned.chosen.size)}, "prefetch": tuned.prefetch}
    assert str(tuned).count("chosen") == 1 and len(str(tuned).splitlines()) == 1 + len(tuned.tried)
    again = tp.tune(largest, "row", X)
    assert again.options == tuned.options and again.tried == tuned.tried


def test_equal_rings_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "cells_a_second", by_size)
    tried = tp.tune(largest, {"row": tp.chunks(size=100)}, X[:400]).tried
    # All turns fit into the larger rings, so that these are one; the other has buffers for two turns.
    assert len({(each.size, each.memory) for each in tried}) == len(tried)
    assert {each.prefetch for each in tried} == {AHEAD, 0}


def test_what_is_chosen_changes_no_result_and_touches_nothing(tmp_path: Path) -> None:
    x = X[:1000]
    write_whole(tp.create(tmp_path / "x.zarr", chunks=(100, 4)).make(x.shape, x.dtype, None, None), x).close()
    source, sink = tp.open(tmp_path / "x.zarr"), tp.create(tmp_path / "y.npy")
    job = tp.stream(centred, {"row": tp.chunks(size=200)}, source, sink, checkpoint=tmp_path / "job")
    tuned = tp.tune(job)
    assert not (tmp_path / "y.npy").exists() and not (tmp_path / "job").exists() and not job.meters
    # In whole chunks that are stored.
    assert len(tuned.tried) > 2 and {each.size % 100 for each in tuned.tried} == {0}
    tp.stream(centred, sources=source, sinks=sink, checkpoint=tmp_path / "job", **tuned.options).run()
    expected = tp.stream(centred, {"row": tp.chunks(size=77)}, x).run()
    assert np.allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("program", "mesh"),
    [
        pytest.param(*(tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=True), {}), marks=pytest.mark.thorough),
        pytest.param(tp.fold(agg.Sum() & agg.Last(), "row c -> c"), {"data": 2}, marks=pytest.mark.thorough),
    ],
    ids=["scan backwards", "two devices"],
)
def test_jobs_of_all_kinds_are_tuned(program: Any, mesh: dict[str, int]) -> None:
    over = {"row": (*mesh, tp.chunks(size=50))}
    more = {"mesh": tp.mesh(None, **mesh)} if mesh else {}
    tuned = tp.tune(program, over, X, **more)
    before, after = (
        tp.stream(program, sources=X, **{"over": over} | given, **more).run() for given in ({}, tuned.options)
    )
    for one, two in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert np.array_equal(one, two)


def test_what_is_tried_fits_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "cells_a_second", by_size)
    tuned = tp.tune(tp.stream(largest, "row", X, memory="24kB"))
    assert all(each.memory <= 24_000 for each in tuned.tried)


def test_a_trial_reads_few_turns() -> None:
    class Counted:
        """An array that counts what is read of it."""

        def __init__(self) -> None:
            self.inside, self.rows = stored(X), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inside, name)

        def read(self, box: Any, into: Any) -> Any:
            self.rows += box[0][1] - box[0][0]
            return self.inside.read(box, into)

    counted = Counted()
    job = tp.stream(tp.trace(largest, tp.TensorType(X.shape, X.dtype)), {"row": tp.chunks(size=10)}, X)
    job = replace(job, sources=(counted,))
    assert cells_a_second(job, 0) > 0 and counted.rows <= 20
    counted.rows = 0
    assert cells_a_second(job, 5 * 160) > 0 and 40 < counted.rows <= 50


def test_what_is_not_tuned_is_refused_with_the_reason() -> None:
    graph = tp.trace(largest, tp.TensorType(X.shape, X.dtype))
    plan = tp.plan(graph, tp.mesh(data=1), {"row": tp.chunks(size=10)})
    jobs = {
        "given as a plan, whose chunks are fixed": (plan, None, X),
        "what an iterator gives is read once": (graph, {"row": tp.chunks(size=10)}, iter([X])),
        "several dimensions are streamed: row, c": (graph, {"row": tp.chunks(2), "c": tp.chunks(2)}, X),
        "`row` is taken in one turn": (graph, {"row": tp.chunks(1)}, X),
    }
    for why, given in jobs.items():
        with pytest.raises(tp.PlanError, match=why):
            tp.tune(*given)


@pytest.mark.parametrize("wrong", [-1, "much", 1.5])
def test_prefetch_is_an_amount_of_bytes(wrong: Any) -> None:
    with pytest.raises(tp.PlanError, match=r"prefetch= of tp\.stream is an amount of bytes"):
        tp.stream(largest, {"row": tp.chunks(size=10)}, X, prefetch=wrong)


def test_prefetch_is_planned_for() -> None:
    few, many = (
        tp.stream(largest, {"row": tp.chunks(size=10)}, X, prefetch=ahead).plan().rows[2] for ahead in (0, "1MiB")
    )
    assert few.name == many.name == "buffers" and few.what.startswith("2 turns") and many.bytes > few.bytes
