"""Jobs that go on with new rows: the result of all rows, no old one read, and what cannot be so.

Thorough: several moments from one device on, whose states go on over devices in every run, beside turns that are full.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import stored
from tapestry_jax.streaming.errors import StreamError
from tests.simulated.sampled import computed
from tests.tapestry_jax.streaming.jobs.test_job import ROWS, centred, table, three_levels

agg = tp.aggregators
OVER = {"row": tp.chunks(size=4)}
FOLDS = {5: agg.Mean() & agg.First() & agg.LogSumExp(), 8: agg.Moments() & agg.First() & agg.LogSumExp()}


class Counted:
    """A source that counts the rows that are read of it."""

    def __init__(self, array: Any) -> None:
        self._inside, self.rows = stored(array), 0
        self.shape, self.dtype, self.names = self._inside.shape, self._inside.dtype, self._inside.names
        self.chunks, self.where, self.beside = self._inside.chunks, self._inside.where, self._inside.beside

    def fingerprint(self) -> str:
        return self._inside.fingerprint()

    def close(self) -> None:
        self._inside.close()

    def read(self, box: Any, into: Any) -> Any:
        self.rows += box[0][1] - box[0][0]
        return self._inside.read(box, into)


def agree(got: Any, want: Any) -> None:
    left, right = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(left) == len(right)
    for mine, other in zip(left, map(np.asarray, right), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


# The eight fill their turns, as the twelve of the integers below do.
@pytest.mark.parametrize("first", [5, pytest.param(8, marks=pytest.mark.thorough)])
def test_folds_go_on_with_the_result_of_all_rows(first: int):
    program, rows = tp.fold(FOLDS[first], "row c -> c"), table(24)
    source = Counted(rows[:first])
    job = tp.stream(program, OVER, source)
    begun = computed(program, rows[:first])
    agree(job.run(), begun)
    read = source.rows
    start, wanted = first, begun
    for count in (5, 0, 24 - first - 5):
        wanted = computed(program, rows[: start + count]) if count else wanted
        agree(job.extend(rows[start : start + count]), wanted)
        start += count
    assert start == 24
    assert source.rows == read
    # A run begins anew.
    agree(job.run(), begun)
    agree(job.extend(rows[first:]), wanted)


def test_integers_go_on_bit_for_bit_from_files(tmp_path: Path):
    rows, program = table(23, np.int32), tp.fold(agg.Sum() & agg.Max(), "row c -> c")
    np.save(tmp_path / "old.npy", rows[:12])
    np.save(tmp_path / "new.npy", rows[12:])
    job = tp.stream(program, {"row": tp.chunks(3)}, tp.open(tmp_path / "old.npy"), memory="64MiB")
    job.run()
    got = job.extend(tp.open(tmp_path / "new.npy"))
    for mine, other in zip(jax.tree.leaves(got), jax.tree.leaves(program(rows)), strict=True):
        np.testing.assert_array_equal(mine, other)


@tp.program("row c, c d -> d")
def scored(x: Any, w: Any) -> Any:
    y = tp.einsum("row c, c d -> row d")(x, w)
    totals = tp.scan(agg.Sum(), "row d -> row d", over="row")(y)
    largest = tp.fold(agg.Max(), "row d -> d")(totals)
    return tp.Map(lambda a, b: a + b)(largest, tp.fold(agg.Mean(), "row d -> d")(y))


def test_scans_inside_and_other_inputs_go_on():
    rows, weights = table(21), table(3)
    # Neither the ten rows nor the five fill their turns.
    job = tp.stream(scored, OVER, (rows[:10], weights))
    job.run()
    agree(job.extend(rows[10:15]), computed(scored, rows[:15], weights))
    agree(job.extend({job.planned.graph.inputs[0].name: rows[15:]}), computed(scored, rows, weights))


@pytest.mark.parametrize("exclusive", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_totals_of_scans_are_merged_with_no_padding(exclusive: bool):
    # Of eight chunks of nine matrices one is half padding and three are nothing else: products with the unit are NaN.
    rows = np.full((18, 2, 2), 0.5, np.float32)
    rows[::3, 0] = np.inf

    def program(x: Any) -> Any:
        scanned = tp.scan(agg.MatrixProduct(), "row [i] [j] -> row", over="row", exclusive=exclusive)(x)
        return tp.fold(agg.Max() & agg.Last(), "row i j -> i j")(scanned)

    job = tp.stream(program, {"row": tp.chunks(8)}, rows[:9])
    job.run()
    found, wanted = job.extend(rows[9:]), program(rows)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(found))
    agree(found, wanted)


def test_several_inputs_with_rows_go_on_by_key():
    rows, keys = table(20), np.arange(20, dtype=np.int32) % 3
    program = tp.fold((agg.Mean() & agg.Max()).by_key(None, 3), "row c, row -> c")
    job = tp.stream(program, OVER, (rows[:11], keys[:11]))
    job.run()
    agree(job.extend((rows[11:], keys[11:])), computed(program, rows, keys))
    with pytest.raises(tp.PlanError, match="new rows are given for every input that has rows"):
        job.extend(rows)
    with pytest.raises(tp.PlanError, match="got different numbers of rows"):
        job.extend((rows, keys[:3]))


def test_rows_stay_on_devices_that_share_out_columns():
    rows, program = table(19), tp.fold(agg.Moments(), "row c -> c")
    job = tp.stream(program, {**OVER, "c": "model"}, rows[:9], mesh=tp.mesh(model=2))
    job.run()
    agree(job.extend(rows[9:]), computed(program, rows))


@tp.program("row c -> c")
def over_their_number(x: Any) -> Any:
    count = x.shape[0]
    return tp.Map(lambda a: a / count)(tp.fold(agg.Sum(), "row c -> c")(x))


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "passes": (three_levels, OVER, "it takes 3 passes, and old rows would be read again"),
    "maps": (tp.scan(agg.Sum(), "row c -> row c", over="row"), OVER, "it gives something for every `row`"),
    "centred": (centred, OVER, "it takes 2 passes"),
    "places": (tp.fold(agg.ArgMin(), "row c, @row -> c"), OVER, "reads the places of rows, `@row`"),
    "number": (over_their_number, OVER, "is another one for 11 rows than for 22"),
    "windows": (
        tp.Map(lambda w: w[:-2] + w[2:], "(row+[k]-1) c -> row c", boundary="edge", sizes={"k": 3})
        >> tp.fold(agg.Sum(), "row c -> c"),
        OVER,
        "windows over `row` would read old rows again",
    ),
    "one turn": (tp.fold(agg.Sum(), "row c -> c"), {"row": tp.chunks(size=11)}, "`row` is taken in one turn"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_old_rows_or_their_number_is_refused(name: str):
    program, over, told = REFUSED[name]
    job = tp.stream(program, over, table())
    before = jax.tree.leaves(job.run())
    # As many rows as there were: sizes alone do not tell.
    with pytest.raises(tp.PlanError, match="this job cannot go on with new rows alone") as error:
        job.extend(table())
    assert told in str(error.value)
    agree(job.run(), before)


def test_what_is_lifted_has_its_number_of_rows():
    job = tp.stream(tp.lift(lambda x: jnp.mean(x, axis=0), table()), {"x_0": tp.chunks(size=4)}, table())
    job.run()
    with pytest.raises(tp.PlanError, match="given as a graph or a plan, whose sizes are fixed"):
        job.extend(table())


def test_jobs_that_cannot_tell_are_refused():
    program = tp.fold(agg.Sum(), "row c -> c")
    with pytest.raises(StreamError, match="nothing to go on from"):
        tp.stream(program, OVER, table()).extend(table())
    with pytest.raises(tp.PlanError, match="given as a graph or a plan, whose sizes are fixed"):
        tp.stream(tp.trace(program, table()), OVER, table()).extend(table())
    with pytest.raises(tp.PlanError, match="`row` is shared out over data"):
        tp.stream(program, {"row": ("data", tp.chunks(2))}, table(), mesh=tp.mesh(data=2)).extend(table())
    job = tp.stream(program, OVER, table())
    job.run()
    for wrong in (table()[:1], table()[:, :2], table(dtype=np.float64), iter([table()])):
        with pytest.raises(tp.PlanError):
            job.extend(wrong)
    agree(job.extend(table()), program(np.concatenate([table(), table()])))
    assert job.reached[-1].rows == 2 * ROWS


def test_programs_that_read_no_rows_run_and_have_none_to_go_on_with():
    repeated = tp.rearrange("c -> row c", row=6)

    @tp.program("c -> c")
    def six(x: Any) -> Any:
        return tp.fold(agg.Sum(), "row c -> c")(repeated(x))

    job = tp.stream(six, {"row": tp.chunks(size=2)}, np.arange(3, dtype=np.float32))
    assert job.run().tolist() == [0, 6, 12]
    with pytest.raises(tp.PlanError, match="no input has `row`, so that there are no new rows"):
        job.extend(np.arange(3, dtype=np.float32))


def test_rows_that_reset_a_job_have_a_result_of_their_own():
    program, rows = tp.fold(agg.Mean() & agg.Max(), "row c -> c"), table(24)
    source = Counted(rows[:8])
    job = tp.stream(program, OVER, source)
    for start, stop in ((8, 16), (16, 24), (3, 7)):
        agree(job.extend(rows[start:stop], mode="reset"), program(rows[start:stop]))
    agree(job.extend(rows[7:20]), program(rows[3:20]))
    assert source.rows == 0
    with pytest.raises(tp.PlanError, match="there is no row to begin with"):
        job.extend(rows[:0], mode="reset")
    agree(job.extend(rows[20:]), program(rows[3:]))
    with pytest.raises(tp.PlanError, match='expected "cumulative" or "reset"'):
        job.extend(rows, mode="again")
