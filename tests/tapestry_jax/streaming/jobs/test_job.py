"""Streams against the unplanned program: every fold, scans, windows, several passes, meshes, degenerate sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import stored

agg = tp.aggregators
ROWS, COLS = 11, 3


def table(rows: int = ROWS, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(rows).integers(-9, 9, (rows, COLS)).astype(dtype)


def agree(program: Any, over: Any, *sources: Any, mesh: Any = None, passes: int | None = None) -> None:
    """The streamed program gives what the unplanned one does; of integers the same bits."""
    job = tp.stream(program, over, sources, mesh=mesh)
    if passes is not None:
        assert len(job.split.passes) == passes
    got, want = jax.tree.leaves(job.run()), jax.tree.leaves(program(*sources))
    assert len(got) == len(want)
    for mine, other in zip(got, map(np.asarray, want), strict=True):
        assert mine.dtype == other.dtype
        if jnp.issubdtype(other.dtype, jnp.floating):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(mine, other)


@tp.program("row c -> row c")
def centred(x: Any) -> Any:
    mean = tp.fold(agg.Mean(), "row c -> c")(x)
    return tp.Map(lambda a, b: a - b, "row c, c -> row c")(x, mean)


@tp.program("row c -> c")
def three_levels(x: Any) -> Any:
    y = centred(x)
    spread = tp.fold(agg.Max(), "row c -> c")(tp.Map(abs)(y))
    scaled = tp.Map(lambda a, b: a / (b + 1), "row c, c -> row c")(y, spread)
    return tp.fold(agg.Sum(), "row c -> c")(tp.Map(lambda a: a * a)(scaled))


def test_stream_folds() -> None:
    several = agg.Moments() & agg.Mean() & agg.MinMax() & agg.Sum() & agg.First() & agg.Last() & agg.LogSumExp()
    agree(tp.fold(several, "row c -> c"), {"row": tp.chunks(size=4)}, table(), passes=1)


def test_stream_folds_with_coordinates() -> None:
    agree(tp.fold(agg.TopK(2) & agg.ArgMin(), "row c, @row -> c"), {"row": tp.chunks(size=4)}, table())


def test_stream_folds_by_key_and_by_segment() -> None:
    keys = np.arange(ROWS, dtype=np.int32) % 4
    by_key = tp.fold((agg.Mean() & agg.Max()).by_key(None, 4), "row c, row -> c")
    agree(by_key, {"row": tp.chunks(size=3)}, table(), keys)
    agree(tp.fold(agg.Sum().by_segment(None, 4), "row c, row -> c"), {"row": tp.chunks(size=3)}, table(), np.sort(keys))


def test_stream_folds_integers_bit_for_bit() -> None:
    agree(tp.fold(agg.Sum() & agg.Max(), "row c -> c"), {"row": tp.chunks(size=2)}, table(dtype=np.int32))


def test_stream_hands_on_what_is_no_number_and_adds_none() -> None:
    # Beside the padding of the last turn, and in a turn of its own.
    x = table()
    x[-1, 0], x[5, 1] = np.nan, np.inf
    total, most = tp.stream(tp.fold(agg.Sum() & agg.Max(), "row c -> c"), {"row": tp.chunks(size=4)}, x).run()
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(most, x.max(0))


SCANS: dict[str, Callable[[], Any]] = {
    "forward": lambda: tp.scan(agg.Sum(), "row c -> row c", over="row"),
    "reverse": lambda: tp.scan(agg.Sum(), "row c -> row c", over="row", reverse=True),
    "exclusive": lambda: tp.scan(agg.Max(), "row c -> row c", over="row", exclusive=True),
    "final": lambda: tp.scan(agg.Sum(), "row c -> row c", over="row", final=True),
}


@pytest.mark.parametrize("name", SCANS)
def test_stream_scans(name: str) -> None:
    agree(SCANS[name](), {"row": tp.chunks(size=4)}, table())


def test_stream_scans_recurrences_over_a_mesh() -> None:
    program = tp.scan(agg.Recurrence(), "row c, row c -> row c", over="row")
    agree(program, {"row": ("data", tp.chunks(2))}, table() / 9, table(), mesh=tp.mesh(data=2), passes=2)


@pytest.mark.parametrize("boundary", ["valid", "zero", "edge", "reflect", "periodic"])
def test_stream_windows(boundary: str) -> None:
    read = "row+[k]" if boundary == "valid" else "row+[k]-2"
    rows = ROWS - 4 if boundary == "valid" else ROWS
    signature, sizes = f"({read}) c -> row c", {"k": 5, "row": rows}
    smooth = tp.Map(lambda w: sum(w[i : len(w) - 4 + i] for i in range(5)), signature, boundary=boundary, sizes=sizes)
    agree(smooth, {"row": tp.chunks(size=4)}, table())


def test_stream_takes_several_passes() -> None:
    agree(centred, {"row": tp.chunks(size=4)}, table(), passes=2)
    agree(three_levels, {"row": tp.chunks(size=4)}, table(), passes=3)


def test_stream_spills_what_later_passes_read() -> None:
    program = tp.scan(agg.Sum(), "row c -> row c", over="row") >> centred
    job = tp.stream(program, {"row": tp.chunks(size=4)}, table())
    assert len(job.split.spilled) == 1
    np.testing.assert_allclose(job.run(), program(table()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "size"), [(0, 4), (1, 1), (7, 1), (7, 7), (7, 9), (8, 4), (9, 4)])
def test_stream_degenerate_sizes(rows: int, size: int) -> None:
    agree(tp.fold(agg.Sum() & agg.Max(), "row c -> c"), {"row": tp.chunks(size=size)}, table(rows, np.int32))


def test_stream_runs_on_a_mesh() -> None:
    agree(centred, {"row": ("data", tp.chunks(size=2))}, table(), mesh=tp.mesh(data=4), passes=2)
    agree(centred, {"row": tp.chunks(size=4), "c": "model"}, table(), mesh=tp.mesh(model=2), passes=2)


def test_stream_writes_to_sinks(tmp_path: Path) -> None:
    source = tmp_path / "x.npy"
    np.save(source, table())
    job = tp.stream(centred, {"row": tp.chunks(size=4)}, tp.open(source), tp.create(tmp_path / "y.zarr"))
    made = job.run()
    found = np.empty(made.shape, made.dtype)
    made.read(((0, ROWS), (0, COLS)), found).result()
    np.testing.assert_allclose(found, centred(table()), rtol=1e-6)


def test_stream_gives_the_same_bits_again() -> None:
    job = tp.stream(tp.fold(agg.Mean(), "row c -> c"), {"row": tp.chunks(size=4)}, table() / 7)
    first, second = jax.tree.leaves(job.run()), jax.tree.leaves(job.run())
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_sums_of_narrow_floats_grow_over_any_number_of_turns(dtype: Any, size: int) -> None:
    ones, over = np.ones((3000, 1), dtype), {"row": tp.chunks(size=size)}
    total, product = tp.fold(agg.Sum(), "row c -> c"), tp.einsum("row c, row d -> c d")
    running = tp.scan(agg.Sum(), "row c -> row c", over="row")
    want = np.asarray(total(jnp.asarray(ones)))
    assert want.tolist() == [np.asarray(3000, dtype)]
    assert tp.stream(total, over, ones).run().tolist() == want.tolist()
    assert tp.stream(product, over, (ones, ones)).run().tolist() == [want.tolist()]
    assert tp.stream(running, over, ones).run()[-1].tolist() == want.tolist()


def test_what_is_wide_enough_or_adds_nothing_is_carried_as_it_is() -> None:
    x = np.ones((6, 2), jnp.bfloat16)
    for program, given in (
        (tp.fold(agg.Max(), "row c -> c"), x),
        (tp.fold(agg.Sum(), "row c -> c"), x.astype(np.float32)),
        (tp.fold(agg.Sum(), "row c -> row"), x),
        (tp.Map(jnp.exp, "row c -> row c"), x),
    ):
        assert not tp.stream(program, {"row": tp.chunks(size=2)}, given).planned.accumulate


SELECTING = {
    "max and min": (agg.MinMax(), 1),
    "best": (agg.ArgMax(), 2),
    "best few": (agg.TopK(3), 2),
    "best by key": (agg.ArgMax().by_key(None, 3), 3),
    "best few by key": ((agg.TopK(2) & agg.First().contramap(lambda x, at: x)).by_key(None, 3), 3),
    "last run": (agg.TopK(2).by_run(), 3),
    "last segment": (agg.Last().contramap(lambda x, at: x).segmented(), 3),
}


@pytest.mark.parametrize("selected", SELECTING)
def test_what_is_selected_is_carried_as_it_is(selected: str) -> None:
    """A dtype without infinities has another value of nothing than a wider one."""
    aggregator, count = SELECTING[selected]
    x, at, labels = np.array([1, 3, 2], jnp.float8_e4m3fn), np.arange(3, dtype=np.int32), np.array([0, 0, 2], np.int32)
    arguments = (x, at, labels)[:count]
    program = tp.fold(aggregator, f"{', '.join('t' * len(arguments))} -> ")
    job = tp.stream(program, {"t": tp.chunks(size=2)}, arguments if len(arguments) > 1 else arguments[0])
    assert not job.planned.accumulate
    wanted, found = (jax.tree.leaves(jax.tree.map(np.asarray, each)) for each in (program(*arguments), job.run()))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted]


def test_what_is_stored_has_its_names_where_it_is_traced_and_where_it_is_streamed() -> None:
    x = stored(table(), names=("time", "x"))
    total = tp.fold(agg.Sum(), "row c -> c")
    assert tp.trace(total, x).inputs[0].results[0].names == ("time", "x")
    for program in (total, tp.trace(total, x)):
        assert tp.stream(program, {"time": tp.chunks(size=2)}, x).run().tolist() == table().sum(0).tolist()


def test_a_job_runs_on_a_device_of_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first of all devices is that of another process, but for one of them.
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[3:5])
    total = tp.fold(tp.aggregators.Sum(), "row c -> c")
    rows = np.ones((8, 2), np.float32)
    job = tp.stream(total, {"row": tp.chunks(size=2)}, rows)
    assert [*job.planned.mesh.devices.flat] == [jax.devices()[3]]
    np.testing.assert_array_equal(job.run(), rows.sum(0))


def test_a_mesh_of_devices_of_other_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    total, rows = tp.fold(tp.aggregators.Sum(), "row c -> c"), np.ones((8, 2), np.float32)
    mesh = tp.mesh(jax.devices()[:2], data=2)
    plan = tp.plan(tp.trace(total, rows), mesh, {"row": tp.chunks(4)})
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(tp.MeshError, match="2 of 2 devices of the mesh belong to other processes"):
        tp.stream(total, {"row": tp.chunks(size=2)}, rows, mesh=mesh)
    with pytest.raises(tp.MeshError, match="2 of 2 devices of the mesh belong to other processes"):
        tp.stream(plan, None, rows)
