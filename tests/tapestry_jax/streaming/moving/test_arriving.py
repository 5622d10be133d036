"""Rows that arrive: generators of any pieces, what cannot be read so, and failures that are told with their row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tests.tapestry_jax.streaming.jobs.test_job import ROWS, centred, table

agg = tp.aggregators
SUMS = tp.fold(agg.Sum() & agg.Max(), "row c -> c")
OVER = {"row": tp.chunks(size=4)}


def traced(program: Any, rows: int = ROWS) -> Any:
    return tp.trace(program, table(rows, np.int32))


def pieces(*sizes: int, rows: int | None = None) -> Iterator[Any]:
    """The rows of a table, so many at once."""
    all_rows, start = table(sum(sizes) if rows is None else rows, np.int32), 0
    for size in sizes:
        yield all_rows[start : start + size]
        start += size


@pytest.mark.parametrize("sizes", [(11,), (1,) * 11, (3, 0, 5, 3, 0), (0, 7, 4)])
def test_rows_are_cut_again_whatever_pieces_they_come_in(sizes: tuple[int, ...]):
    got = jax.tree.leaves(tp.stream(traced(SUMS), OVER, pieces(*sizes)).run())
    for mine, other in zip(got, jax.tree.leaves(SUMS(table(dtype=np.int32))), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("rows", "size"), [(0, 4), (1, 1), (5, 2), (7, 9)])
def test_rows_of_degenerate_sizes(rows: int, size: int):
    got = tp.stream(traced(SUMS, rows), {"row": tp.chunks(size=size)}, pieces(rows)).run()
    np.testing.assert_array_equal(jax.tree.leaves(got)[0], table(rows, np.int32).sum(0))


def test_rows_that_fill_up_no_turn_are_read_once():
    # In four turns of two the last one has no row of its own.
    got = tp.stream(traced(SUMS, 5), {"row": tp.chunks(4)}, pieces(2, 3)).run()
    np.testing.assert_array_equal(jax.tree.leaves(got)[0], table(5, np.int32).sum(0))


def test_rows_arrive_beside_others_and_for_scans():
    two = tp.scan(agg.Recurrence(), "row c, row c -> row c", over="row")
    graph = tp.trace(two, table(), table())
    got = tp.stream(graph, OVER, (iter([table()[:6], table()[6:]]), iter([table()]))).run()
    np.testing.assert_array_equal(got, tp.stream(graph, OVER, (table(), table())).run())


def test_rows_arrive_for_several_folds_of_one_pass():
    both = tp.fold(agg.Sum(), "row c -> c") & tp.fold(agg.Max(), "row c -> c")
    got = tp.stream(traced(both), OVER, pieces(5, 6)).run()
    for mine, other in zip(jax.tree.leaves(got), (table().sum(0), table().max(0)), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_iterable_gives_every_run_its_rows_and_a_generator_one():
    class Rows:
        def __iter__(self) -> Iterator[Any]:
            return pieces(4, 7)

    job = tp.stream(traced(SUMS), OVER, Rows())
    first, second = jax.tree.leaves(job.run()), jax.tree.leaves(job.run())
    np.testing.assert_array_equal(first, second)
    once = tp.stream(traced(SUMS), OVER, pieces(4, 7))
    once.run()
    with pytest.raises(StreamError, match=r"the rows of `.*` were read by a run already"):
        once.run()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: pieces(4, 5, rows=11), r"end too early\n  expected 11 rows\n  got 9"),
        (lambda: pieces(4, 7, 1, rows=12), r"go on too long\n  expected 11 rows\n  got 12 or more"),
        (lambda: pieces(4, 8, rows=12), r"go on too long\n  expected 11 rows\n  got 12 or more"),
        (lambda: iter([table()]), r"after row 0 has another type\n  expected int32 .*\n  got float32 \(11, 3\)"),
        (lambda: iter([table(dtype=np.int32)[:, :2]]), r"got int32 \(11, 2\)"),
        (lambda: iter([{"x": 1}]), "got a dict"),
        (lambda: iter(table(dtype=np.int32)), r"got int32 \(3,\)"),
    ],
)
def test_wrong_rows_are_refused_with_their_place(given: Callable[[], Any], told: str, tmp_path: Path):
    for folder in (None, tmp_path / "job"):
        with pytest.raises(StreamError, match=told):
            tp.stream(traced(SUMS), OVER, given(), checkpoint=folder).run()


def failing() -> Iterator[Any]:
    yield table(dtype=np.int32)[:6]
    raise OSError("the line is cut")


@pytest.mark.parametrize(("name", "is_kept"), [("sums", False), ("sums", True), ("centred", True)])
def test_a_failure_is_told_with_its_row_and_a_kept_job_goes_on(name: str, is_kept: bool, tmp_path: Path):
    program = SUMS if name == "sums" else tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=True)
    kept = {"checkpoint": tmp_path / "job", "save_every": 1} if is_kept else {}
    with pytest.raises(StreamError, match=r"has failed\n  after row 6 of 11\n  .*the line is cut") as told:
        tp.stream(traced(program), OVER, failing(), **kept).run()
    assert isinstance(told.value.__cause__, OSError)
    got = tp.stream(traced(program), OVER, pieces(4, 7), **kept).run()
    for mine, other in zip(jax.tree.leaves(got), jax.tree.leaves(program(table(dtype=np.int32))), strict=True):
        np.testing.assert_array_equal(mine, other)
    if is_kept:
        # One that has finished reads nothing.
        again = tp.stream(traced(program), OVER, failing(), **kept).run()
        np.testing.assert_array_equal(jax.tree.leaves(again)[0], jax.tree.leaves(got)[0])
        assert not [*(tmp_path / "job").glob("source-*")]


@pytest.mark.parametrize(
    ("program", "over", "mesh", "told"),
    [
        (lambda: centred, OVER, None, "the program reads them in 2 passes"),
        (lambda: tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=True), OVER, None, "goes backwards"),
        (lambda: tp.Map(lambda w: w[:-2] + w[2:], "(row+[k]-1) c -> row c", boundary="edge", sizes={"k": 3}),
         OVER, None, "not whole rows, one behind the other"),
        (lambda: SUMS, {"row": ("data", tp.chunks(2))}, 2, "not whole rows, one behind the other"),
        (lambda: SUMS, {"row": tp.chunks(2), "c": "data"}, 3, "not whole rows, one behind the other"),
    ],
)  # fmt: skip
def test_what_reads_rows_again_is_refused_without_a_folder(
    program: Any, over: Any, mesh: int | None, told: str, tmp_path: Path
):
    found, devices = program(), None if mesh is None else tp.mesh(data=mesh)
    graph = tp.trace(found, table())
    with pytest.raises(tp.PlanError, match=told):
        tp.stream(graph, over, iter([table()]), mesh=devices)
    kept = tp.stream(graph, over, iter([table()[:3], table()[3:]]), mesh=devices, checkpoint=tmp_path / "job")
    for mine, other in zip(jax.tree.leaves(kept.run()), jax.tree.leaves(found(table())), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_a_program_without_sizes_needs_them_for_rows_that_arrive():
    with pytest.raises(tp.PlanError, match="nothing says how many rows an iterator gives"):
        tp.stream(SUMS, OVER, pieces(11))


def test_data_sets_of_grain_arrive():
    grain = pytest.importorskip("grain")
    rows = grain.MapDataset.source(table(dtype=np.int32)).batch(4)
    for given in (rows, rows.to_iter_dataset(), iter(rows.to_iter_dataset())):
        got = tp.stream(traced(SUMS), OVER, given).run()
        np.testing.assert_array_equal(jax.tree.leaves(got)[0], table().sum(0))
