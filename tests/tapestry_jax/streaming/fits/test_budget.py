"""What a stream needs of memory: the table, chunks that fit, and refusals that say what would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.fits.budget import read_memory
from tapestry_jax.streaming.fits.fitting import turns_of_chunks
from tests.forked import run

X = np.ones((1000, 64), np.float32)


def three() -> Any:
    """What is carried is as large as three rows."""
    return tp.fold(tp.aggregators.Sum() & tp.aggregators.MinMax(), "row c -> c")


def means() -> Any:
    """Each size that is weighed is compiled: of less than moments."""
    return tp.fold(tp.aggregators.Mean(), "row c -> c")


def test_budget_names_every_row_and_sums_them() -> None:
    budget = tp.stream(three(), {"row": tp.chunks(size=100)}, X, memory="1MB").plan()
    rows = {row.name: row.bytes for row in budget.rows}
    assert rows["buffers"] == 2 * 100 * 64 * 4
    assert rows["carried"] >= 3 * 64 * 4
    assert rows["in memory"] == 0
    assert budget.total == sum(rows.values())
    assert budget.fits
    assert str(budget).splitlines()[0] == "row: 10 turns of 100 cells"
    assert str(budget).splitlines()[-1].startswith("limit")


def test_budget_counts_results_that_have_no_sink() -> None:
    program = tp.Map(lambda a: a + 1, "row c -> row c")
    held = {row.name: row.bytes for row in tp.stream(program, {"row": tp.chunks(size=100)}, X).plan().rows}
    assert held["in memory"] == X.nbytes


def test_stream_chooses_the_largest_chunks_that_fit() -> None:
    job = tp.stream(means(), "row", X, memory="100kB")
    (_, block, turns), budget = job.plan().chunks[0], job.plan()
    assert 1 < turns < 1000
    assert budget.total <= 100_000
    fewer = tp.stream(means(), {"row": tp.chunks(size=2 * block)}, X)
    assert sum(row.bytes for row in fewer.plan().rows) > 100_000
    np.testing.assert_allclose(job.run(), X.mean(0))


@pytest.mark.parametrize("memory", [12_000, 64_000])
def test_no_chunks_that_divide_the_rows_are_larger_and_fit(memory: int) -> None:
    rows = np.ones((1000, 8), np.float32)
    program = tp.fold(tp.aggregators.Sum(), "row c -> c")
    ((_, block, _),) = tp.stream(program, "row", rows, memory=memory).plan().chunks
    larger = [size for size in (100, 125, 200, 250, 500) if size > block]
    assert all(tp.stream(program, {"row": tp.chunks(size=size)}, rows).plan().total > memory for size in larger)


def test_stream_refuses_what_does_not_fit_and_says_what_would() -> None:
    with pytest.raises(tp.PlanError, match=r"Take smaller chunks: \{'row': tp.chunks\(size=\d+\)\} fits"):
        tp.stream(means(), {"row": tp.chunks(size=500)}, X, memory="100kB")
    with pytest.raises(tp.PlanError, match="Give more memory"):
        tp.stream(means(), "row", X, memory=1000)


def test_turns_of_chunks_are_aligned_first() -> None:
    aligned, turns = turns_of_chunks(600, 100, 300)
    assert aligned == [2, 3, 6]
    assert {*aligned} <= {*turns}
    assert max(turns) > 100


@pytest.mark.parametrize(("text", "count"), [("512MiB", 512 << 20), ("2 GB", 2 * 10**9), (7, 7), ("1.5kB", 1500)])
def test_memory_is_read(text: Any, count: int) -> None:
    assert read_memory(text) == count


@pytest.mark.parametrize("wrong", ["a lot", "12", -1, 0, 1.5, "0MB", True])
def test_memory_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(tp.PlanError, match="is an amount of bytes"):
        read_memory(wrong)


def test_what_a_source_takes_beside_the_buffers_is_planned_and_refused_by_its_name(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = np.random.default_rng(0).normal(size=2**20).astype(np.float32)
    parquet.write_table(arrow.table({"v": rows}), tmp_path / "x.parquet", row_group_size=10**9)
    program, source = tp.fold(tp.aggregators.Sum(), "row ->"), tp.open(tmp_path / "x.parquet")
    held = {row.name: row for row in tp.stream(program, {"row": tp.chunks(size=4096)}, source).plan().rows}
    assert held["stores"].bytes == source.beside((4096,)).bytes > 8 << 20
    assert "x.parquet, `v`: pages of" in held["stores"].what
    with pytest.raises(tp.PlanError) as refused:
        tp.stream(program, "row", source, memory="8MiB")
    told = str(refused.value).splitlines()
    assert told[0].startswith("the stream needs 1")
    assert any("MiB for " in line and "in row groups of 1,048,576 rows (4.0 MiB), decoded" in line for line in told)
    assert told[-1].endswith(
        "Write it with smaller pages or row groups (pyarrow: data_page_size=, row_group_size=), or as .npy."
    )
    assert tp.stream(program, "row", source, memory="24MiB").run() == pytest.approx(rows.sum(dtype=np.float64), abs=1)


def test_what_is_read_whole_is_planned_with_what_reading_takes(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "w.npz", w=np.ones((64, 4096), np.float32))
    program = tp.einsum("row c, c k -> k")
    job = tp.stream(program, {"row": tp.chunks(size=10)}, (X, tp.open(tmp_path / "w.npz")))
    budget = job.plan()
    assert budget.part == "what is read whole, before the first pass"
    rows = {row.name: row.bytes for row in budget.rows}
    assert rows["buffers"] == 64 * 4096 * 4
    assert rows["stores"] >= 64 * 4096 * 4


class _Silent:
    """Something stored that does not say what reading takes."""

    shape, dtype, names, chunks, where = X.shape, X.dtype, None, X.shape, "silent"

    def read(self, box: Any, into: Any) -> Any:
        raise NotImplementedError

    def fingerprint(self) -> str:
        return "silent"

    def close(self) -> None:
        return None


class _SilentSink:
    """What makes a sink, and does not say what writing takes."""

    where = "silent"

    def make(self, *given: Any) -> Any:
        raise NotImplementedError


def test_what_does_not_say_what_it_takes_is_refused() -> None:
    with pytest.raises(tp.PlanError, match=r"does not say what memory reading takes(.|\n)*`beside\(sizes\)`"):
        tp.stream(means(), {"row": tp.chunks(size=10)}, _Silent())
    program = tp.Map(lambda a: a + 1, "row c -> row c")
    with pytest.raises(tp.PlanError, match=r"does not say what memory writing takes(.|\n)*`beside\(shape, chunks"):
        tp.stream(program, {"row": tp.chunks(size=10)}, X, _SilentSink())


_APART = """
import gc, os, sys
import jax
import numpy as np
jax.config.update("jax_platforms", "cpu")
import tapestry_jax as tp
def counted(name):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
os.chdir(sys.argv[1])
turned = tp.einsum("row c -> c row")
tp.stream(turned, {"row": tp.chunks(size=8)}, np.ones((64, 1024), np.float32), tp.create("small.npy")).run()
job = tp.stream(turned, "row", tp.open("x.npy"), tp.create("y.npy"), memory="20MiB")
gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = counted("VmRSS")
job.run()
print(job.plan().total, counted("VmHWM") - before)
"""


def test_cells_that_are_written_apart_add_no_more_than_was_planned(tmp_path: Path) -> None:
    rows = np.arange(12 << 20, dtype=np.float32).reshape(12 * 1024, 1024)  # 48 MiB
    np.save(tmp_path / "x.npy", rows)
    ran = run(_APART, tmp_path)
    assert ran.returncode == 0, ran.stderr
    planned, measured = map(int, ran.stdout.split())
    assert planned <= 20 << 20
    assert measured <= 1.1 * planned + (4 << 20)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy", mmap_mode="r"), rows.T)


_MEASURED = """
import resource, sys
import jax
import numpy as np
jax.config.update("jax_platforms", "cpu")
import tapestry_jax as tp
small = np.ones((64, 1024), np.float32)
program = tp.fold(tp.aggregators.Mean(), "row c -> c")
tp.stream(program, {"row": tp.chunks(size=8)}, small).run()
job = tp.stream(program, "row", tp.open(sys.argv[1]), memory="12MiB")
planned = job.plan().total
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
job.run()
print(planned, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_run_adds_no_more_than_was_planned(tmp_path: Path) -> None:
    source = tmp_path / "x.npy"
    np.save(source, np.ones((10 * 1024, 1024), np.float32))  # 40 MiB
    ran = run(_MEASURED, source)
    assert ran.returncode == 0, ran.stderr
    planned, measured = map(int, ran.stdout.split())
    assert planned <= 12 << 20
    assert measured <= 1.1 * planned + (4 << 20)
