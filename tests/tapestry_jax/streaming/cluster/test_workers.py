"""Streams on the workers of a cluster: processes that are started, killed and stopped here."""

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
from tapestry_jax.streaming.cluster import driver, ranges
from tapestry_jax.streaming.cluster.local import local_client
from tapestry_jax.streaming.kept.partials import PARTIALS
from tests.tapestry_jax.streaming.kept.stops import Stop
from tests.workers import forked_workers

agg = tp.aggregators
ROWS, COLS = 1000, 4


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with forked_workers(), local_client(2) as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.normal(size=(ROWS, COLS)).astype(np.float32))
    np.save(tmp_path / "n.npy", random.integers(-99, 99, (ROWS, COLS)).astype(np.int32))
    return tmp_path


def sums(x: Any) -> Any:
    """Sums of floats, whose bits tell the order, and what does not commute."""
    return tp.fold(agg.Sum() & agg.First() & agg.Last(), "row c -> c")(x)


@tp.program("row c -> row c")
def centred(x: Any) -> Any:
    most = tp.fold(agg.Max(), "row c -> c")(x)
    twice = tp.Map(lambda a: a * 2)(x)
    return tp.Map(lambda a, b, m: a + b - m, "row c, row c, c -> row c")(x, twice, most)


def stream(program: Any, place: Path, name: str, client: Any, *, run: str = "run", size: int = 10, **more: Any) -> Any:
    over = {"row": tp.chunks(size=size)}
    kept = {} if client is None else {"checkpoint": place / run, "engine": client}
    return tp.stream(program, over, tp.open(place / name), **kept, **more)


def bits(result: Any) -> list[tuple[Any, bytes]]:
    return [(leaf.shape, np.asarray(leaf).tobytes()) for leaf in jax.tree.leaves(result)]


def test_workers_look_at_no_accelerator(client: Any) -> None:
    assert {*client.run(lambda: os.environ["JAX_PLATFORMS"]).values()} == {"cpu"}


def test_integers_have_the_bits_of_one_process(client: Any, place: Path) -> None:
    expected = stream(sums, place, "n.npy", None).run()
    assert bits(stream(sums, place, "n.npy", client).run()) == bits(expected)
    # A job that has finished computes nothing, and has left no partials.
    again = stream(sums, place, "n.npy", client)
    assert bits(again.run()) == bits(expected) and not again.meters
    assert not (place / "run" / PARTIALS).exists()


def test_workers_compute_under_the_settings_of_the_driver(client: Any, place: Path) -> None:
    np.save(place / "d.npy", np.random.default_rng(1).normal(size=(20, 2)))
    with jax.enable_x64(True):
        found = stream(sums, place, "d.npy", client, run="double").run()
    total = jax.tree.leaves(found)[0]
    assert total.dtype == np.float64
    np.testing.assert_allclose(total, np.load(place / "d.npy").sum(0), rtol=1e-14)


def near(w: Any) -> Any:
    return (w[:-2] + 2 * w[2:]) % 101


def test_repetitions_are_turned_pass_by_pass_and_go_on(
    client: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tp.Map(near, "(row+[k]-1) c -> row c", boundary="edge", sizes={"k": 3})
    graph = tp.trace(tp.iterate(step, 5), tp.TensorType({"row": ROWS, "c": COLS}, np.int32))
    over = {"row": (tp.chunks(size=200), tp.halo(depth=2))}

    def job() -> Any:
        return tp.stream(graph, over, tp.open(place / "n.npy"), checkpoint=place / "run", engine=client)

    done = driver.in_any_order
    passes: list[int] = []

    def stopping(client: Any, handed: Any, *given: Any) -> Any:
        passes.append(handed.step)
        if len(passes) == 2:
            raise Stop
        return done(client, handed, *given)

    monkeypatch.setattr(driver, "in_any_order", stopping)
    with pytest.raises(Stop):
        job().run()
    found, wanted = job().run(), np.load(place / "n.npy")
    for _ in range(5):
        wanted = near(np.pad(wanted, ((1, 1), (0, 0)), "edge"))
    np.testing.assert_array_equal(found, wanted)
    # The first pass is not turned again, and nothing between passes is left.
    assert passes == [0, 1, 1, 2] and len([*(place / "run").glob("pass-*.npy")]) == 1


def test_two_passes_write_what_one_process_writes(client: Any, place: Path) -> None:
    job = stream(centred, place, "n.npy", client, size=30, sinks=tp.create(place / "y.npy"))
    assert len(job.split.passes) == 2
    made = job.run()
    rows = np.load(place / "n.npy")
    np.testing.assert_array_equal(np.load(place / "y.npy"), rows * 3 - rows.max(0))
    assert made.where.endswith("y.npy") and job.metrics.turns == sum(part.turns for part in job.split.passes)


def test_what_workers_have_made_is_in_the_cache_and_read_by_them(client: Any, place: Path) -> None:
    rows = np.load(place / "n.npy")
    # `Max` first: what the second job begins with is in the cache, and its one pass is turned by workers.
    largest = tp.fold(agg.Max(), "row c -> c")
    cached = {"cache": place / "cache", "size": 250}
    stream(largest, place, "n.npy", client, run="most", **cached).run()
    for run, passes in (("one", 1), ("two", 0)):
        job = stream(centred, place, "n.npy", client, run=run, **cached)
        np.testing.assert_array_equal(job.run(), rows * 3 - rows.max(0))
        assert job.metrics.turns == 4 * passes and (place / run).exists() is bool(passes)


def when_committed(place: Path, count: int, act: Any) -> threading.Thread:
    """Do something once so many partials of the job in `place` are there."""

    def wait() -> None:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            if (found := len([*(place / PARTIALS).glob("*/turns-*")])) >= count:
                act(found)
                return
            time.sleep(0.001)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_killed_workers_stopped_drivers_and_numbers_of_workers_change_no_bit(
    client: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo: list[list[tuple[int, int]]] = []
    done = driver.in_any_order
    monkeypatch.setattr(driver, "in_any_order", lambda *given: (todo.append([*given[2]]), done(*given))[1])
    rows = np.load(place / "x.npy")
    first = stream(sums, place, "x.npy", client, run="two").run()
    np.testing.assert_allclose(jax.tree.leaves(first)[0], rows.sum(0), atol=1e-3)
    tasks = len(todo[0])
    assert tasks == 50

    # A worker dies in the middle.
    counts: list[int] = []
    pids = [*client.run(os.getpid).values()]
    waiting = when_committed(place / "one", 3, lambda n: (counts.append(n), os.kill(pids[0], signal.SIGKILL)))
    assert bits(stream(sums, place, "x.npy", client, run="one").run()) == bits(first)
    waiting.join()
    assert len(counts) == 1 and counts[0] < tasks

    # The driver is stopped in the middle, a file is damaged meanwhile, and one worker goes on.
    waiting = when_committed(place / "three", 10, lambda n: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match="run it again"):
        stream(sums, place, "x.npy", client, run="three").run()
    waiting.join()
    client.cluster.scale(1)
    committed = sorted((place / "three" / PARTIALS).glob("*/turns-*"))
    data = bytearray(committed[0].read_bytes())
    data[-3] ^= 1
    committed[0].write_bytes(data)
    assert bits(stream(sums, place, "x.npy", client, run="three").run()) == bits(first)
    again = {f"turns-{begin}-{stop}" for begin, stop in todo[-1]}
    assert committed[0].name in again and not again & {path.name for path in committed[1:]}
    assert 10 <= len(committed) < tasks


@pytest.mark.thorough
def test_a_worker_that_dies_in_new_rows_changes_no_bit(client: Any, place: Path) -> None:
    rows = np.load(place / "x.npy")
    np.save(place / "old.npy", rows[:300])
    np.save(place / "new.npy", rows[300:])

    def extended(run: str) -> Any:
        stream(sums, place, "old.npy", client, run=run).run()
        return stream(sums, place, "old.npy", client, run=run).extend(tp.open(place / "new.npy"))

    calm, counts = extended("calm"), list[int]()
    pids = [*client.run(os.getpid).values()]
    batch = place / "killed" / "batches" / "00000001"
    waiting = when_committed(batch, 3, lambda n: (counts.append(n), os.kill(pids[0], signal.SIGKILL)))
    assert bits(extended("killed")) == bits(calm)
    waiting.join()
    assert len(counts) == 1
    np.testing.assert_allclose(jax.tree.leaves(calm)[0], rows.sum(0), atol=1e-3)


@pytest.mark.parametrize("tasks", [64, 3])
def test_what_a_worker_begins_with_is_merged_with_nothing(
    client: Any, tmp_path: Path, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One in eight chunks of 13 matrices holds nothing; a product with the unit matrix of any turn would be NaN.
    monkeypatch.setattr(ranges, "_TASKS", tasks)
    rows = np.full((13, 2, 2), 0.5, np.float32)
    rows[::3, 0], rows[-1] = np.inf, np.inf
    np.save(tmp_path / "m.npy", rows)
    fold = tp.fold(agg.MatrixProduct(), "row [i] [j] -> ")
    job = tp.stream(
        fold, {"row": tp.chunks(8)}, tp.open(tmp_path / "m.npy"), checkpoint=tmp_path / "run", engine=client
    )
    found = job.run()
    assert not np.isnan(found).any()
    np.testing.assert_array_equal(found, fold(rows))


def running(x: Any, *, reverse: bool = False) -> Any:
    return tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=reverse)(x)


def thrice(x: Any) -> Any:
    """Scans of what scans give, each with what begins anew in every range, and a fold of them in the same pass."""
    first = running(x)
    second = running(tp.Map(lambda a: a % 7)(first))
    most = tp.scan(agg.Max(), "row c -> row c", over="row")(tp.Map(lambda a, b: a - 3 * b)(second, x))
    return most, tp.fold(agg.Min() & agg.Last(), "row c -> c")(second)


@pytest.mark.parametrize("program", [thrice, lambda x: running(x, reverse=True)])
def test_scans_have_the_bits_of_one_process(
    client: Any, place: Path, monkeypatch: pytest.MonkeyPatch, program: Any
) -> None:
    monkeypatch.setattr(ranges, "_TASKS", 4)
    job = stream(program, place, "n.npy", client, size=130)
    assert len(job.split.passes) == 1 and len(ranges.ranges(job.split.passes[0])) == 4
    assert bits(job.run()) == bits(program(np.load(place / "n.npy")))
    assert job.metrics.turns == 8


def test_scans_that_are_stopped_find_no_total_twice(client: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_TASKS", 4)
    todo: list[tuple[int | None, int]] = []
    done, stops = driver.in_any_order, [True]

    def seen(client: Any, handed: Any, cut: Any, number: int | None = None) -> Any:
        todo.append((number, len(cut)))
        yield from done(client, handed, cut, number)
        if todo[-1][0] is None and stops:
            stops.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(driver, "in_any_order", seen)
    with pytest.raises(KeyboardInterrupt):
        stream(running, place, "n.npy", client, size=130).run()
    found = stream(running, place, "n.npy", client, size=130).run()
    np.testing.assert_array_equal(found, np.load(place / "n.npy").cumsum(0))
    assert todo == [(0, 3), (None, 4), (0, 0), (None, 0)]


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_workers_merge_nothing_with_what_no_turn_has_met(
    client: Any, tmp_path: Path, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_TASKS", 4)
    rows = np.full((13, 2, 2), 0.5, np.float32)
    rows[::3, 0], rows[-1] = np.inf, np.inf
    np.save(tmp_path / "m.npy", rows)
    scan = tp.scan(agg.MatrixProduct(), "row [i] [j] -> row", over="row", reverse=reverse)
    job = tp.stream(
        scan, {"row": tp.chunks(8)}, tp.open(tmp_path / "m.npy"), checkpoint=tmp_path / "run", engine=client
    )
    found = job.run()
    assert not np.isnan(found).any()
    np.testing.assert_array_equal(found, scan(rows))
