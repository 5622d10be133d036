"""Rows that come later, into the folder of a job: every batch is counted once, whoever is killed when."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import joined, stored
from tapestry_jax.storage import save as save_tensors
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import Frozen, load, save
from tests.tapestry_jax.streaming.kept.stops import Stop
from tests.tapestry_jax.streaming.kept.test_extending import agree

agg = tp.aggregators
ROWS = np.random.default_rng(3).integers(-9, 9, (21, 3)).astype(np.float32)
ENDS = (0, 8, 16, 21)
FOLDS = tp.fold(agg.Mean() & agg.Last(), "row c -> c")
DAYS = [f"day{number}.npy" for number in range(3)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate(DAYS):
        np.save(path, ROWS[ENDS[number] : ENDS[number + 1]])


def job(day: int = 0, program: Any = FOLDS, size: int = 2, sources: Any = (), **more: Any) -> Any:
    """The job as another process makes it, for the rows of its day."""
    read = (tp.open(DAYS[day]), *sources)
    return tp.stream(program, {"row": tp.chunks(size=size)}, read, checkpoint="run", save_every=2, **more)


def script(days: int = 3) -> Any:
    """What a user runs again and again."""
    result = job().run()
    for day in range(1, days):
        result = job(day).extend(tp.open(DAYS[day]))
    return result


def read(each: Any) -> int:
    return each.metrics.stage("read").bytes if each.meters else 0


def test_tomorrows_process_goes_on_and_reads_no_old_row() -> None:
    job().run()
    for day in (1, 2):
        # Nothing of what was counted is there any more.
        Path(DAYS[day - 1]).unlink()
        today = job(day, size=2 + day % 2)
        agree(today.extend(tp.open(DAYS[day])), FOLDS(ROWS[: ENDS[day + 1]]))
        assert read(today) == np.load(DAYS[day]).nbytes
        again = job(day)
        agree(again.extend(tp.open(DAYS[day])), FOLDS(ROWS[: ENDS[day + 1]]))
        assert read(again) == 0
    assert sorted(path.name for path in Path("run/batches").iterdir()) == ["00000001", "00000002"]


@pytest.mark.parametrize("before", [True, False])
def test_a_script_that_stops_at_every_state_counts_each_batch_once(before: bool, stopping: Any) -> None:
    want, stops = FOLDS(ROWS), 0
    while True:
        stopping(2 if before else 1, before)
        try:
            got = script()
        except Stop:
            stops += 1
            assert stops < 60
            continue
        break
    agree(got, want)
    newest = load("run/batches/00000002")
    assert newest is not None and newest.arrays["rows"].tolist() == [8, 21]
    assert newest.arrays["batches"].shape == (3, 64) and len(np.unique(newest.arrays["batches"], axis=0)) == 3
    # Every state but the first of each job stops it once: three jobs of 4, 4 and 3 turns.
    assert stops > 6


def test_what_goes_on_has_the_bits_of_what_nobody_stops(stopping: Any) -> None:
    want = jax.tree.leaves(script())
    shutil.rmtree("run")
    for left in (3, 3, 2):
        stopping(left, False)
        with pytest.raises(Stop):
            script()
    stopping(0, False)
    for mine, other in zip(jax.tree.leaves(script()), want, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_a_batch_that_was_not_counted_may_come_later(stopping: Any) -> None:
    job().run()
    stopping(2, False)
    with pytest.raises(Stop):
        job(1).extend(tp.open(DAYS[1]))
    stopping(0, False)
    agree(job(2).extend(tp.open(DAYS[2])), FOLDS(np.concatenate([ROWS[:8], ROWS[16:]])))
    agree(job(1).extend(tp.open(DAYS[1])), FOLDS(np.concatenate([ROWS[:8], ROWS[16:], ROWS[8:16]])))


def damaged(folder: str) -> None:
    newest = max(path for path in Path(folder).iterdir() if path.name.startswith("state"))
    data = bytearray(newest.read_bytes())
    data[-3] ^= 4
    newest.write_bytes(data)


def test_a_damaged_end_is_made_again_of_its_own_rows_and_is_not_passed_over() -> None:
    script(2)
    damaged("run/batches/00000001")
    with pytest.warns(UserWarning, match="is passed over"), pytest.raises(StreamError, match="may be counted, in a"):
        job(2).extend(tp.open(DAYS[2]))
    with pytest.warns(UserWarning, match="is passed over"):
        agree(job(1).extend(tp.open(DAYS[1])), FOLDS(ROWS[:16]))
    agree(job(2).extend(tp.open(DAYS[2])), FOLDS(ROWS))


def test_rows_in_memory_are_counted_by_name() -> None:
    job().run()
    with pytest.raises(tp.PlanError) as caught:
        job(1).extend(ROWS[8:16])
    assert str(caught.value) == (
        "these rows have no place by which they are known again\n"
        "  a job that is killed is given its rows again, and nothing would tell that they were counted\n"
        '  Name them: job.extend(new, batch="2026-11-23").'
    )
    for name in ("monday", "tuesday", "monday"):
        got = job(1).extend(ROWS[8:16], batch=name)
    agree(got, FOLDS(np.concatenate([ROWS[:16], ROWS[8:16]])))
    with pytest.raises(tp.PlanError, match="other rows were counted as the batch 'monday'"):
        job(1).extend(ROWS[9:16], batch="monday")
    agree(job(1).extend(ROWS[:0]), got)
    for wrong in (3, ""):
        with pytest.raises(tp.PlanError, match=r"batch= of job\.extend is a name"):
            job(1).extend(ROWS[8:16], batch=wrong)
    memory = tp.stream(FOLDS, {"row": tp.chunks(size=2)}, ROWS)
    memory.run()
    with pytest.raises(tp.PlanError, match="without checkpoint= nothing remembers"):
        memory.extend(ROWS, batch="monday")


def test_a_file_that_was_written_since_is_no_new_batch_by_itself() -> None:
    script(2)
    np.save(DAYS[1], ROWS[16:])
    with pytest.raises(tp.PlanError, match=r"other rows were counted as day1.npy\n  what is there now may hold rows"):
        job(1).extend(tp.open(DAYS[1]))
    agree(job(1).extend(tp.open(DAYS[1]), batch="later"), FOLDS(ROWS))
    # The job's own rows are a batch as well.
    agree(job(1).extend(tp.open(DAYS[0])), FOLDS(ROWS))


def test_files_that_are_joined_are_counted_each() -> None:
    job().run()
    agree(job(1).extend(joined([tp.open(DAYS[1]), tp.open(DAYS[2])])), FOLDS(ROWS))
    for known in (tp.open(DAYS[2]), joined([tp.open(path) for path in DAYS[::-1]])):
        again = job(1)
        agree(again.extend(known), FOLDS(ROWS))
        assert read(again) == 0
    np.save("day3.npy", ROWS)
    with pytest.raises(tp.PlanError, match=r"some of these rows are counted already\n  day1.npy is counted\n  Give"):
        job(1).extend(joined([tp.open(DAYS[1]), tp.open("day3.npy")]))


def other_names() -> Iterator[Any]:
    """The rows of one file, however it is opened."""
    Path("link.npy").symlink_to(DAYS[1])
    Path("sub").mkdir()
    for path in (f"./{DAYS[1]}", f"sub/../{DAYS[1]}", "link.npy", Path(DAYS[1]).absolute().as_uri()):
        yield tp.open(path)
    yield tp.open(DAYS[1], format="npy", names=("row", "c"))


def test_one_file_is_one_batch_however_it_is_opened() -> None:
    script(2)
    for rows in other_names():
        again = job(1)
        agree(again.extend(rows), FOLDS(ROWS[:16]))
        assert read(again) == 0, rows


@pytest.mark.parametrize("kind", ["npz", "safetensors", "parquet", "arrow", "duckdb", "icechunk", "zarr"])
def test_one_tensor_is_one_batch_with_and_without_its_name(kind: str) -> None:
    if kind == "icechunk":
        pytest.importorskip("icechunk")
    sums, part = tp.fold(agg.Sum(), "row -> "), ROWS[8:16, 0].copy()
    place, name = Path(f"several.{kind}"), "several" if kind == "icechunk" else "x"
    whole = place
    if kind in ("icechunk", "zarr"):
        if kind == "zarr":
            place.mkdir()
            whole = place / name
        sink = tp.create(whole, format=kind).make(part.shape, part.dtype, None, None)
        sink.write(((0, 8),), part).result()
        sink.finish().close()
    else:
        save_tensors(place, {name: stored(part)})
    first = ROWS[:8, 0].copy()
    tp.stream(sums, {"row": tp.chunks(size=2)}, first, checkpoint="run").run()
    for given in (tp.open(whole, format=kind), tp.open(place, name)):
        again = tp.stream(sums, {"row": tp.chunks(size=2)}, first, checkpoint="run")
        assert again.extend(given) == ROWS[:16, 0].sum()
        given.close()


def test_files_that_are_given_twice_at_once_are_refused() -> None:
    job().run()
    twice = [joined([tp.open(DAYS[1]), tp.open(DAYS[1])])]
    twice.append(joined([tp.open(DAYS[1]), joined([tp.open(DAYS[2]), tp.open(DAYS[1], format="npy")])]))
    for rows in twice:
        with pytest.raises(tp.PlanError) as caught:
            job(1).extend(rows)
        assert str(caught.value) == (
            "some of these rows are given twice\n  day1.npy is there again\n"
            "  Give each of them once, or give all of them a name: batch=."
        )
    agree(job(1).extend(joined([joined([tp.open(DAYS[1])]), tp.open(DAYS[2])])), FOLDS(ROWS))
    for known in DAYS[1:]:
        agree(job(1).extend(tp.open(known)), FOLDS(ROWS))


def test_what_is_no_tensor_is_no_row() -> None:
    for more in ({}, {"checkpoint": "run"}):
        each = tp.stream(FOLDS, {"row": tp.chunks(size=2)}, ROWS[:8], **more)
        each.run()
        for wrong in (None, [[ROWS, ROWS]]):
            with pytest.raises(tp.PlanError, match="new rows are one tensor for every input that has rows"):
                each.extend(wrong)


@tp.program("row c, c -> c")
def weighed(x: Any, w: Any) -> Any:
    return tp.fold(agg.Sum(), "row c -> c")(tp.Map(lambda a, b: a * b, "row c, c -> row c")(x, w))


def test_another_program_and_other_weights_are_refused() -> None:
    weights = np.arange(3, dtype=np.float32)
    job(program=weighed, sources=[weights]).run()
    agree(job(1, weighed, sources=[weights]).extend([tp.open(DAYS[1])]), weighed(ROWS[:16], weights))
    with pytest.raises(StreamError, match=r"is another one than this.\n  source w"):
        job(2, weighed, sources=[weights + 1]).extend([tp.open(DAYS[2])])
    with pytest.raises(StreamError, match=r"is another one than this.\n  graph: was"):
        job(2, tp.fold(agg.Max(), "row c -> c")).extend(tp.open(DAYS[2]))


def test_nothing_to_go_on_from_is_told() -> None:
    with pytest.raises(StreamError) as caught:
        job().extend(tp.open(DAYS[1]))
    assert 'job.run(), or begin with these rows: mode="reset".' in str(caught.value)
    job().run()
    state = load("run")
    assert state is not None
    arrays = {name: array for name, array in state.arrays.items() if name.startswith("output")}
    save("run", Frozen(state.job, state.sources, state.sinks, state.position, arrays))
    with pytest.raises(StreamError, match="has finished without a state to go on from"):
        job(1).extend(tp.open(DAYS[1]))


def test_a_reset_forgets_and_is_counted_once(stopping: Any) -> None:
    agree(job(2).extend(tp.open(DAYS[2]), mode="reset"), FOLDS(ROWS[16:]))
    stopping(3, False)
    with pytest.raises(Stop):
        job(0).extend(tp.open(DAYS[0]))
    stopping(0, False)
    agree(job(0).extend(tp.open(DAYS[0])), FOLDS(np.concatenate([ROWS[16:], ROWS[:8]])))
    for times in range(2):
        again = job(0)
        agree(again.extend(tp.open(DAYS[0]), mode="reset"), FOLDS(ROWS[:8]))
        assert read(again) == (0 if times else 96)
    agree(job(1).extend(tp.open(DAYS[1])), FOLDS(ROWS[:16]))
    with pytest.raises(tp.PlanError, match="there is no row to begin with"):
        job(1).extend(ROWS[:0], mode="reset")


def test_results_in_sinks_are_replaced_and_found_again() -> None:
    total = tp.fold(agg.Sum(), "row c -> c")

    def summed(day: int, path: str = "sum.npy") -> Any:
        return job(day, total, sinks=tp.create(path, overwrite=True))

    summed(0).run().close()
    for _ in range(2):
        summed(1).extend(tp.open(DAYS[1])).close()
        np.testing.assert_array_equal(np.load("sum.npy"), ROWS[:16].sum(0))
    with pytest.raises(StreamError, match=r"lies elsewhere\n  .*sum.npy\n  got"):
        summed(1, "other.npy").extend(tp.open(DAYS[1]))
    np.save("sum.npy", np.zeros(3, np.float32))
    with pytest.raises(StreamError, match=r"sum.npy` was written since"):
        summed(1).extend(tp.open(DAYS[1]))


def test_a_result_that_a_stopped_batch_has_written_over_is_told(stopping: Any) -> None:
    def summed(day: int) -> Any:
        return job(day, tp.fold(agg.Sum(), "row c -> c"), sinks=tp.create("sum.npy", overwrite=True))

    summed(0).run().close()
    for day, turns in ((1, 4), (2, 3)):
        # The last state alone is not written, where the result is there already.
        stopping(1 + turns // 2 + 1, True)
        with pytest.raises(Stop):
            summed(day).extend(tp.open(DAYS[day]))
        stopping(0, False)
        np.testing.assert_array_equal(np.load("sum.npy"), ROWS[: ENDS[day + 1]].sum(0))
        with pytest.raises(StreamError, match=r"was written over\n  others .*\n  Give those rows again first"):
            summed(day).extend(tp.open(DAYS[day - 1]))
        summed(day).extend(tp.open(DAYS[day])).close()
        np.testing.assert_array_equal(np.load("sum.npy"), ROWS[: ENDS[day + 1]].sum(0))


def test_states_move_between_devices_along_columns() -> None:
    def on(devices: int, day: int) -> Any:
        over = {"row": tp.chunks(size=2), "c": "model"}
        mesh = tp.mesh(model=devices)
        return tp.stream(FOLDS, over, tp.open(DAYS[day]), mesh=mesh, checkpoint="run")

    on(2, 0).run()
    for day, devices in enumerate((1, 3), 1):
        agree(on(devices, day).extend(tp.open(DAYS[day])), FOLDS(ROWS[: ENDS[day + 1]]))


def test_other_types_are_kept_as_they_are() -> None:
    rows = jnp.asarray(ROWS % 5).astype(jnp.bfloat16)
    program = tp.fold(agg.Max() & agg.Min(), "row c -> c")
    for start, stop in ((0, 8), (8, 16), (16, 21)):
        part = np.asarray(rows[start:stop])
        each = tp.stream(program, {"row": tp.chunks(size=3)}, part, checkpoint="run")
        got = each.run() if start == 0 else each.extend(part, batch=f"{start}")
        for mine, other in zip(jax.tree.leaves(got), jax.tree.leaves(program(rows[:stop])), strict=True):
            assert mine.tobytes() == np.asarray(other).tobytes() and mine.dtype == rows.dtype


def test_the_folder_is_settled_when_the_job_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = job()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    each.run()
    assert (tmp_path / "run").is_dir() and not Path("run").exists()


def test_rows_that_are_given_back_have_no_place_for_new_ones() -> None:
    def both(x: Any) -> Iterator[Any]:
        return x, FOLDS(x)  # pyright: ignore[reportReturnType]

    for more in ({}, {"checkpoint": "run"}):
        each = tp.stream(both, {"row": tp.chunks(size=2)}, ROWS[:8], **more)
        each.run()
        with pytest.raises(tp.PlanError, match="it gives something for every `row`"):
            each.extend(ROWS[8:])
