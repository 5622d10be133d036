"""New rows on workers: the bits of one process, no old row read, batches that one has begun and another takes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.cluster import driver, ranges
from tapestry_jax.streaming.frozen import load
from tests.tapestry_jax.streaming.kept.stops import Stop
from tests.workers import worker_in_this_process

agg = tp.aggregators
DAY = 18
ROWS = np.random.default_rng(7).integers(-99, 99, (3 * DAY, 3)).astype(np.int32)
KEYS = (np.arange(3 * DAY) % 4).astype(np.int32)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with worker_in_this_process() as found:
        yield found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for day in range(3):
        np.save(f"rows{day}.npy", ROWS[day * DAY : (day + 1) * DAY])
        np.save(f"keys{day}.npy", KEYS[day * DAY : (day + 1) * DAY])


def several(x: Any, keys: Any) -> Any:
    """A fold of what a scan gives, and one by key."""
    running = tp.scan(agg.Sum(), "row c -> row c", over="row")(x)
    by_key = tp.fold(agg.Sum().by_key(None, 4), "row c, row -> c")(x, keys)
    return tp.fold(agg.Max() & agg.Sum(), "row c -> c")(running), by_key


def thrice(x: Any, keys: Any) -> Any:
    """Scans of what scans give, and what does not commute."""
    running = tp.scan(agg.Sum(), "row c -> row c", over="row")(x)
    second = tp.scan(agg.Sum(), "row c -> row c", over="row")(tp.Map(lambda a: a % 7)(running))
    most = tp.scan(agg.Max(), "row c -> row c", over="row")(tp.Map(lambda a, b: a - 3 * b)(second, x))
    by_key = tp.fold((agg.Sum() & agg.Max()).by_key(None, 4), "row c, row -> c")(most, keys)
    return tp.fold(agg.First() & agg.Last(), "row c -> c")(second), by_key


def wanted(days: int) -> list[np.ndarray]:
    """What `several` gives for the first days."""
    x, keys = ROWS[: days * DAY], KEYS[: days * DAY]
    running = x.cumsum(0, np.int32)
    return [running.max(0), running.sum(0, np.int32), np.stack([x[keys == key].sum(0) for key in range(4)], 1)]


def sources(day: int) -> tuple[Any, Any]:
    return tp.open(f"rows{day}.npy"), tp.open(f"keys{day}.npy")


def job(day: int, engine: Any, size: int = 4, program: Any = several) -> Any:
    return tp.stream(program, {"row": tp.chunks(size=size)}, sources(day), checkpoint="run", engine=engine)


def same(found: Any, expected: Any) -> None:
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_new_rows_on_workers_go_on_where_any_engine_has_ended(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # No chunk but the last is uneven, and no range ends with a day.
    monkeypatch.setattr(ranges, "_TASKS", 3)
    done, seen, stops = driver.in_any_order, list[tuple[int | None, int]](), list[int]()

    def stopping(client: Any, handed: Any, todo: Any, number: int | None = None) -> Iterator[int]:
        seen.append((number, len(todo)))
        yield from done(client, handed, todo, number)
        if stops and len(seen) == stops[0]:
            stops.clear()
            raise Stop

    monkeypatch.setattr(driver, "in_any_order", stopping)
    same(job(0, client).run(), wanted(1))
    for kind in ("rows", "keys"):
        # What was counted need not be there any more.
        Path(f"{kind}0.npy").unlink()
    seen.clear()
    stops.append(1)
    with pytest.raises(Stop):
        job(1, client).extend(sources(1))
    same(job(1, client).extend(sources(1)), wanted(2))
    # The totals were committed, and are not found again.
    assert seen == [(0, 2), (0, 0), (None, 3)]
    seen.clear()
    stops.append(1)
    with pytest.raises(Stop):
        job(2, client).extend(sources(2))
    begun = load("run/batches/00000002")
    assert begun is not None and not begun.position.finished and begun.job["engine"] == "workers"
    # Of floats the order would be another: another engine begins the batch anew.
    same(job(2, None).extend(sources(2)), wanted(3))


@pytest.mark.thorough
@pytest.mark.parametrize("program", [several, thrice])
@pytest.mark.parametrize(
    ("who", "tasks", "size"),
    [("www", 64, 4), ("wpw", 2, 4), ("pww", 3, 7), ("wwp", 2, 5), ("www", 1, 4), ("wpw", 64, 1)],
)
def test_new_rows_have_the_bits_of_all_rows(
    client: Any, monkeypatch: pytest.MonkeyPatch, program: Any, who: str, tasks: int, size: int
) -> None:
    monkeypatch.setattr(ranges, "_TASKS", tasks)
    for day, each in enumerate(who):
        today = job(day, client if each == "w" else None, size, program)
        found = today.extend(sources(day)) if day else today.run()
        same(found, program(ROWS[: (day + 1) * DAY], KEYS[: (day + 1) * DAY]))
    assert not [*Path("run").rglob("turns-*")]


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["www", "wpw", "pww"])
@pytest.mark.parametrize("tasks", [64, 3])
def test_totals_of_ranges_are_merged_with_no_padding(
    client: Any, monkeypatch: pytest.MonkeyPatch, who: str, tasks: int
) -> None:
    # Of eight chunks of nine matrices one is half padding and three are nothing else: products with the unit are NaN.
    monkeypatch.setattr(ranges, "_TASKS", tasks)
    rows = np.full((27, 2, 2), 0.5, np.float32)
    rows[::4, 0] = np.inf

    def program(x: Any) -> Any:
        scanned = tp.scan(agg.MatrixProduct(), "row [i] [j] -> row", over="row")(x)
        return tp.fold(agg.Max() & agg.Last(), "row i j -> i j")(scanned)

    for day, each in enumerate(who):
        np.save(f"matrices{day}.npy", rows[day * 9 : day * 9 + 9])
        source = tp.open(f"matrices{day}.npy")
        today = tp.stream(
            program, {"row": tp.chunks(8)}, source, checkpoint="run", engine=client if each == "w" else None
        )
        found = today.extend(source) if day else today.run()
    same(found, program(rows))


def test_new_rows_that_workers_cannot_open_are_refused(client: Any) -> None:
    with pytest.raises(tp.PlanError, match=r"needs sources that workers open themselves\n  an array in memory"):
        job(1, client).extend((ROWS[:4], KEYS[:4]), batch="tuesday", mode="reset")
    assert not Path("run/batches").exists()
