"""Repetitions over what is stored: passes over files, several turns in each, with every boundary of the program.

Whole numbers, beside NumPy: a cell that a pass takes from the wrong turn, or from the wrong side of an end, is another.
The thorough tests add boundaries and sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.kept import checkpoint
from tests.tapestry_jax.streaming.kept.stops import Stop
from tests.tapestry_jax.streaming.whole import whole

agg = tp.aggregators
PADS = {"reflect": "reflect", "edge": "edge", "zero": "constant", "periodic": "wrap"}
ROWS, COLUMNS = 23, 4
reduced = tp.Map(lambda a: a % 101)


def system(boundary: str, turns: int) -> Any:
    """Two fields, each of which reads the other's neighbours."""

    def taps(u: Any, v: Any) -> tuple[Any, Any]:
        return 2 * u[-1, 0] + u[1, 0] + v[0, 1], v[-2, 0] - u.here

    step = tp.stencil(taps, {"y": (-2, 1), "x": (0, 1)}, boundary={"y": boundary, "x": "zero"})

    @tp.program("y x, y x -> y x, y x")
    def program(u, v):
        def turn(a, b):
            a, b = step(a, b)
            return reduced(a), reduced(b)

        return tp.iterate(turn, turns)(u, v)

    return program


def expected(u: np.ndarray, v: np.ndarray, boundary: str, turns: int) -> list[np.ndarray]:
    for _ in range(turns):
        a, b = (np.pad(np.pad(w, ((2, 1), (0, 0)), PADS[boundary]), ((0, 0), (0, 1))) for w in (u, v))
        u, v = (2 * a[1:-2, :-1] + a[3:, :-1] + b[2:-1, 1:]) % 101, (b[:-3, :-1] - u) % 101
    return [u, v]


def fields(rows: int = ROWS) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    return [random.integers(0, 99, (rows, COLUMNS)).astype(np.int32) for _ in range(2)]


@pytest.mark.parametrize(
    ("boundary", "turns", "depth", "size", "rows"),
    [
        ("edge", 7, 3, 5, 23),
        pytest.param("reflect", 5, 2, 2, 17, marks=pytest.mark.thorough),
        pytest.param("zero", 4, 4, 9, 23, marks=pytest.mark.thorough),
        pytest.param("periodic", 5, 5, 8, 24, marks=pytest.mark.thorough),
        *(
            pytest.param(boundary, turns, depth, size, rows, marks=pytest.mark.thorough)
            for boundary in PADS
            for turns, depth, size, rows in ((6, 4, 1, 13), (3, 1, 4, 12), (2, 2, 12, 23))
        ),
    ],
)
def test_passes_over_several_turns_are_the_turns(boundary: str, turns: int, depth: int, size: int, rows: int) -> None:
    given = fields(rows)
    over = {"y": (tp.chunks(size=size), tp.halo(depth=depth))}
    job = tp.stream(system(boundary, turns), over, given)
    assert len(job.split.passes) == -(-turns // depth)
    for found, wanted in zip(job.run(), expected(*given, boundary, turns), strict=True):
        np.testing.assert_array_equal(found, wanted)
    # Two passes of full turns are one program, and each reads a field once.
    assert all(len(part.pieces) == 2 for part in job.split.passes)


def test_a_repetition_without_a_halo_is_a_pass_for_each_turn() -> None:
    given = fields()
    job = tp.stream(system("edge", 4), {"y": tp.chunks(size=6)}, given)
    assert len(job.split.passes) == 4
    for found, wanted in zip(job.run(), expected(*given, "edge", 4), strict=True):
        np.testing.assert_array_equal(found, wanted)
    # All four are one compiled program, beside what they begin with.
    assert len(job.programs._known) == 2


def test_two_values_between_passes_are_there_at_a_time() -> None:
    few, many = (tp.stream(system("edge", turns), {"y": tp.chunks(size=6)}, fields()).plan() for turns in (3, 9))
    held = {row.name: row.bytes for row in many.rows}
    assert held["between passes"] == 4 * ROWS * COLUMNS * 4 and many.total == few.total


def test_what_a_repetition_carries_may_stay_on_the_devices() -> None:
    # Rows are read in every turn; what is carried has none.
    rows = np.random.default_rng(0).integers(-3, 4, (40, 5)).astype(np.int32)

    @tp.program("row c, c -> c")
    def program(x, v):
        def turn(w, x):
            return reduced(tp.einsum("row c, row -> c")(x, tp.einsum("row c, c -> row")(x, w)))

        return tp.iterate(turn, 6)(v, x)

    job = tp.stream(program, {"row": tp.chunks(size=7)}, (rows, np.ones(5, np.int32)))
    found, wanted = job.run(), np.ones(5, np.int32)
    for _ in range(6):
        wanted = rows.T @ (rows @ wanted) % 101
    np.testing.assert_array_equal(found, wanted)
    # The turns are one program, what stands between them another, and what a pass begins with a third.
    assert len(job.split.passes) == 6 and len(job.programs._known) == 3


def test_repetitions_in_repetitions_and_none_at_all() -> None:
    step = tp.stencil(lambda a: a[-1] + 2 * a[1], {"y": (-1, 1)}, boundary="edge")

    @tp.program("y -> y")
    def program(u):
        inner = tp.iterate(lambda w: reduced(step(w)), 2)
        return tp.iterate(lambda w: reduced(inner(w) + w), 3)(u)

    given = np.arange(13, dtype=np.int32)
    job = tp.stream(program, {"y": (tp.chunks(size=4), tp.halo(depth=2))}, given)
    wanted = given
    for _ in range(3):
        inner = wanted
        for _ in range(2):
            padded = np.pad(inner, 1, "edge")
            inner = (padded[:-2] + 2 * padded[2:]) % 101
        wanted = (inner + wanted) % 101
    np.testing.assert_array_equal(job.run(), wanted)
    none = tp.stream(tp.program("y -> y")(lambda u: step(tp.iterate(step, 0)(u))), {"y": tp.chunks(size=4)}, given)
    np.testing.assert_array_equal(none.run(), np.pad(given, 1, "edge")[:-2] + 2 * np.pad(given, 1, "edge")[2:])


def test_sizes_beside_a_halo_are_left_to_the_memory() -> None:
    given = np.arange(64, dtype=np.int32)
    step = tp.stencil(lambda a: a[-1] + 2 * a[1], {"y": (-1, 1)}, boundary="edge")
    graph = tp.trace(tp.iterate(step, 2), tp.TensorType({"y": 64}, np.int32))
    job = tp.stream(graph, {"y": tp.halo(depth=2)}, given, memory="2kB")
    assert job.plan().fits and len(job.split.passes) == 1
    with pytest.raises(tp.PlanError, match=r"keep values between passes in a folder: checkpoint='run/'"):
        tp.stream(graph, {"y": (tp.chunks(size=1), tp.halo(depth=1))}, given, memory="400B")


def test_repetitions_that_no_host_turns_are_refused() -> None:
    step = tp.stencil(lambda a: a[-1] + 2 * a[1], {"y": (-1, 1)}, boundary="edge")

    @tp.program
    def ending(u):
        return tp.iterate(step, until=lambda w: tp.fold(agg.Max(), "y -> ")(w) > 50, at_most=3)(u).state

    given = np.arange(13, dtype=np.int32)
    with pytest.raises(
        tp.PlanError,
        match=r"what it hands on is stored: only a state(.|\n)*ask for the condition between two jobs",
    ):
        tp.stream(tp.trace(ending, tp.TensorType({"y": 13}, np.int32)), {"y": tp.chunks(size=4)}, given)
    with pytest.raises(
        tp.PlanError, match=r"turns cannot be taken 2 at once\n  depth `y` 2\n  Write tp.halo\(depth=1\)"
    ):
        tp.stream(ending, {"y": (tp.chunks(size=4), tp.halo(depth=2))}, given)

    many = tp.program("y -> y")(lambda u: tp.iterate(step, 20)(u))
    with pytest.raises(tp.PlanError, match="the halo of `y` is wider than the tensor"):
        tp.stream(many, {"y": (tp.chunks(size=4), tp.halo(depth=14))}, given)


# What is kept


def kept(top: Path, size: int = 6, depth: int = 4) -> Any:
    for name, array in zip("uv", fields(), strict=True):
        if not (top / f"{name}.npy").exists():
            np.save(top / f"{name}.npy", array)
    sources = [tp.open(top / f"{name}.npy") for name in "uv"]
    over = {"y": (tp.chunks(size=size), tp.halo(depth=depth))}
    sinks = {"y/0": tp.create(top / "later.npy")}
    return tp.stream(KEPT, over, sources, sinks, checkpoint=top / "run", save_every=3)


KEPT = system("edge", 9)


def stopped(call: Callable[[], Any], at: int, folder: Path) -> tuple[int, int]:
    """Run up to the sync or rename of this number; how many there were, and the most files between passes."""
    count = most = 0
    real = os.fsync, os.replace

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            nonlocal count, most
            count += 1
            if count == at:
                raise Stop
            most = max(most, len([*folder.glob("pass-*.npy"), *folder.glob("pass-*.partial")]))
            return call(*given, **more)

        return wrapped

    os.fsync, os.replace = map(counted, real)
    try:
        call()
    except Stop:
        pass
    finally:
        os.fsync, os.replace = real
    return count, most


@pytest.mark.thorough
@pytest.mark.parametrize("share", [n / 40 for n in range(40)])
def test_a_repetition_that_is_stopped_goes_on_and_leaves_two_values_at_most(tmp_path: Path, share: float) -> None:
    (tmp_path / "first").mkdir()
    count, most = stopped(lambda: kept(tmp_path / "first").run(), -1, tmp_path / "first/run")
    # Of each field what is read and what is written, and the result that has no sink.
    assert most == 5
    stopped(lambda: kept(tmp_path).run(), 1 + int(share * count), tmp_path / "run")
    # Of four, four and one turns is another job than of three times three; of what was stopped before its first state
    # nothing is known.
    if [*(tmp_path / "run").glob("state-*")]:
        with pytest.raises(StreamError, match=r"passes: was 3 passes \w+, is 3 passes"):
            kept(tmp_path, depth=3).run()
    else:
        assert share < 0.2
    found, wanted = (
        jax.tree.map(whole, kept(tmp_path, size=3).run(), is_leaf=lambda each: hasattr(each, "read")),
        (expected(*fields(), "edge", 9)),
    )
    for each, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(each, want)
    assert not [*(tmp_path / "run").glob("pass-0*")] and not [*(tmp_path / "run").glob("*.partial*")]


def test_what_is_removed_is_needed_by_no_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first value goes behind the second pass, two turns behind the last state that was due.
    remove = checkpoint._remove_value

    def stopping(*given: Any) -> None:
        remove(*given)
        raise Stop

    monkeypatch.setattr(checkpoint, "_remove_value", stopping)
    with pytest.raises(Stop):
        kept(tmp_path).run()
    monkeypatch.undo()
    found = whole(jax.tree.leaves(kept(tmp_path).run(), is_leaf=lambda each: hasattr(each, "read"))[0])
    np.testing.assert_array_equal(found, expected(*fields(), "edge", 9)[0])


@pytest.mark.thorough
def test_values_behind_divided_loops_are_cached_as_what_they_are(tmp_path: Path) -> None:
    # Of five turns, two at once, a halo makes two loops: nodes behind them have other numbers than in the program.
    step = tp.Map(lambda w: w[:-2] + 2 * w[2:], "(y+[k]-1) z -> y z", boundary="edge", sizes={"k": 3})

    @tp.program("y z -> y, y")
    def program(u):
        w = tp.iterate(lambda a: reduced(step(a)), 5)(u)
        return tp.fold(agg.Max(), "y z -> y")(w), tp.fold(agg.Min(), "y z -> y")(w)

    given = np.random.default_rng(0).integers(0, 99, (16, 6)).astype(np.int32)
    np.save(tmp_path / "u.npy", given)
    wanted = given
    for _ in range(5):
        padded = np.pad(wanted, ((1, 1), (0, 0)), "edge")
        wanted = (padded[:-2] + 2 * padded[2:]) % 101
    halo = {"y": ("data", tp.halo(depth=2)), "z": tp.chunks(3)}
    for over, mesh, read in ((halo, tp.mesh(data=2), given.nbytes), ({"y": tp.chunks(2)}, None, 0)):
        job = tp.stream(program, over, tp.open(tmp_path / "u.npy"), mesh=mesh, cache=tmp_path / "cache")
        largest, least = job.run()
        np.testing.assert_array_equal(largest, wanted.max(1))
        np.testing.assert_array_equal(least, wanted.min(1))
        assert job.metrics.stage("read").bytes == read
