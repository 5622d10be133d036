"""Jobs that stop at every moment and go on: the same bits, in other chunks, on other devices, and what is refused."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import load, save
from tapestry_jax.streaming.kept import checkpoint
from tapestry_jax.streaming.kept.interrupts import heard
from tests.tapestry_jax.streaming.kept.killed_jobs import COLS, JOBS, ROWS, arrays, ran, source, stream
from tests.tapestry_jax.streaming.kept.stops import Stop
from tests.thoroughly import thoroughly

# Moments are stopped by signals, below.
FEW = ("sums", "running", "doubled", "centred")


def expected(name: str, folder: Path, size: int | None = None) -> list[np.ndarray]:
    """What the job gives that is never stopped."""
    (folder / "whole").mkdir()
    return arrays(ran(name, size or JOBS[name].sizes[-1], folder / "whole", every=None))


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) for a, b in zip(left, right, strict=True)
    )


# Batches are stopped at every state in test_batches.py, and repetitions are killed.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW else pytest.mark.thorough) for name in JOBS]
)
def test_a_job_that_stops_at_every_state_goes_on(name: str, tmp_path: Path, stopping: Any):
    size = JOBS[name].sizes[-1]
    want, stops = expected(name, tmp_path), 0
    for before in (True, False):
        folder = tmp_path / f"{before}"
        folder.mkdir()
        for _ in range(40):
            stopping(2 if before else 1, before)
            try:
                got = arrays(ran(name, size, folder))
            except Stop:
                stops += 1
                # A state that is never written would stop for ever: the next one may be.
                stopping(None, False) if before else None
                got = arrays(ran(name, size, folder)) if before else None
            if got is not None:
                break
        assert got is not None and same(got, want), name
    assert stops > 2


@pytest.mark.parametrize("name", ["centred", "repeated"])
def test_what_the_last_pass_reads_is_there_until_the_end_is_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It went when that pass had read it, before the state that says so: a kill between the two left a job for dead."""
    size, want = JOBS[name].sizes[-1], expected(name, tmp_path)
    save = checkpoint.save

    def stopped(folder: Any, frozen: Any) -> int:
        if frozen.position.finished:
            raise Stop
        return save(folder, frozen)

    # No state at the last turn of a pass but where values go.
    turns = ROWS // size
    every = next(each for each in range(2, turns + 2) if turns % each)
    for _ in range(2):
        monkeypatch.setattr(checkpoint, "save", stopped)
        with pytest.raises(Stop):
            ran(name, size, tmp_path, every)
    monkeypatch.setattr(checkpoint, "save", save)
    assert same(arrays(ran(name, size, tmp_path, every)), want)
    assert not list((tmp_path / "run").glob("pass-*"))


@pytest.mark.parametrize("name", ["sums", "running", "doubled", "centred"])
def test_a_job_goes_on_in_other_chunks(name: str, tmp_path: Path, stopping: Any):
    want = expected(name, tmp_path)
    for begun in (4, 2) if thoroughly() else (4,):
        # Smaller and larger ones than it was begun with, where there are.
        for after in JOBS[name].sizes if thoroughly() else {JOBS[name].sizes[0], JOBS[name].sizes[-1]}:
            folder = tmp_path / f"{begun}-{after}"
            folder.mkdir()
            stopping(4, False)
            with pytest.raises(Stop):
                stream(name, begun, folder, every=2 if begun == 4 else 4).run()
            stopping(None, False)
            assert same(arrays(stream(name, after, folder).run()), want), (begun, after)


def test_chunks_that_do_not_end_where_it_stands_are_refused(tmp_path: Path, stopping: Any):
    stopping(2, False)
    with pytest.raises(Stop):
        stream("sums", 4, tmp_path, every=1).run()
    with pytest.raises(StreamError) as caught:
        stream("sums", 3, tmp_path).run()
    assert str(caught.value) == (
        f"the job in {tmp_path / 'run'} cannot go on in these chunks.\n"
        "  pass 1 of 1 stands at cell 4 of `row`\n"
        "  no turn of 16, of 3 cells each on a device, ends there\n"
        "  Choose a size of chunks that divides 4, or the one it was begun with."
    )


@pytest.mark.parametrize(
    ("begun", "after"), [(2, 1), *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((1, 2), (4, 2)))]
)
def test_a_job_goes_on_with_other_devices_along_what_is_not_streamed(
    begun: int, after: int, tmp_path: Path, stopping: Any
):
    np.save(tmp_path / "x.npy", np.arange(ROWS * 4, dtype="int32").reshape(ROWS, 4) % 23)
    graph = tp.trace(JOBS["centred"].program, tp.TensorType({"row": ROWS, "c": 4}, "int32"))

    def job(devices: int) -> Any:
        entries = {"row": tp.chunks(size=8), "c": "model"}
        kept = {"checkpoint": tmp_path / "run", "save_every": 1}
        return tp.stream(graph, entries, (tp.open(tmp_path / "x.npy"),), mesh=tp.mesh(model=devices), **kept)

    want = arrays(tp.stream(graph, {"row": tp.chunks(size=8)}, (tp.open(tmp_path / "x.npy"),)).run())
    for stops in (3, 8, 12):
        stopping(stops, False)
        with pytest.raises(Stop):
            job(begun).run()
        stopping(None, False)
        assert same(arrays(job(after).run()), want)
        for path in (tmp_path / "run").iterdir():
            path.unlink()


def test_devices_along_what_is_streamed_stay_as_many(tmp_path: Path, stopping: Any):
    graph = tp.trace(JOBS["sums"].program, tp.TensorType({"row": ROWS, "c": COLS}, "int32"))

    def job(devices: int, size: int = 4) -> Any:
        entries = {"row": ("data", tp.chunks(size=size))}
        kept = {"checkpoint": tmp_path / "run", "save_every": 1}
        return tp.stream(graph, entries, (source("sums"),), mesh=tp.mesh(data=devices), **kept)

    stopping(3, False)
    with pytest.raises(Stop):
        job(2).run()
    stopping(None, False)
    with pytest.raises(StreamError, match=r"cannot go on in these chunks|share the work out otherwise"):
        job(4).run()
    want = arrays(tp.stream(graph, {"row": tp.chunks(size=4)}, (source("sums"),)).run())
    assert same(arrays(job(2, 2).run()), want)


def test_a_finished_job_gives_its_result_again_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = arrays(stream("centred", 4, tmp_path).run())
    assert sorted(path.suffix for path in (tmp_path / "run").iterdir() if path.name != "lock") == ["", ""]
    assert load(tmp_path / "run").position.finished  # pyright: ignore[reportOptionalMemberAccess]
    monkeypatch.setattr("tapestry_jax.streaming.running.Runner.run", None)
    assert same(arrays(stream("centred", 2, tmp_path).run()), first)


def test_what_has_changed_is_told(tmp_path: Path, stopping: Any):
    stopping(2, False)
    with pytest.raises(Stop):
        stream("sums", 4, tmp_path).run()
    np.save(tmp_path / "x.npy", source("sums") + 1)
    with pytest.raises(StreamError, match=r"is another one than this.\n  source .*: was "):
        stream("sums", 4, tmp_path).run()
    least = tp.fold(tp.aggregators.Min(), "row c -> c")
    with pytest.raises(StreamError, match=r"another one than this.\n  graph: was .*\n  passes: was "):
        tp.stream(least, {"row": tp.chunks(size=4)}, (source("sums"),), checkpoint=tmp_path / "run").run()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_source_that_changes_while_a_job_begins_is_told(
    tmp_path: Path, stopping: Any, monkeypatch: pytest.MonkeyPatch, goes_on: bool
):
    if goes_on:
        stopping(3, False)
        with pytest.raises(Stop):
            stream("sums", 4, tmp_path).run()
        stopping(None, False)
    job, begun = stream("sums", 4, tmp_path), checkpoint.begun_sinks

    def written(*given: Any) -> Any:
        # Behind the look that the state is held against, before a row is read: the same size, other numbers.
        with (tmp_path / "x.npy").open("r+b") as file:
            file.seek(-4, 2)
            file.write(b"abcd")
        return begun(*given)

    monkeypatch.setattr(checkpoint, "begun_sinks", written)
    with pytest.raises(StreamError, match=r"a source was written while the job began to read it: .*x.npy"):
        job.run()


@pytest.mark.parametrize(("name", "number"), [("moments", signal.SIGINT), ("sums", signal.SIGTERM)])
def test_a_signal_ends_the_turn_keeps_it_and_frees_the_folder(
    name: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    want, keep = expected(name, tmp_path), checkpoint.freeze
    handler = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        due, raised = checkpoint._Keeper.is_due, list[int]()

        def is_due(keeper: Any, position: Any) -> bool:
            if position.turns == 5 and not raised:
                raised.append(position.turns)
                signal.raise_signal(number)
            return due(keeper, position)

        monkeypatch.setattr(checkpoint._Keeper, "is_due", is_due)
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as caught:
            stream(name, 4, tmp_path, every="1000s").run()
        assert "run it again" in str(caught.value) if number == signal.SIGINT else caught.value.code == 143  # pyright: ignore[reportAttributeAccessIssue]
        assert keep is checkpoint.freeze and load(tmp_path / "run").position.cells == 20  # pyright: ignore[reportOptionalMemberAccess]
        assert same(arrays(stream(name, 4, tmp_path, every="1000s").run()), want)
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_a_signal_that_the_process_ignores_stops_no_job():
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            with heard() as interrupts:
                signal.raise_signal(number)
            assert interrupts.number is None
        assert {signal.getsignal(number) for number in before} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_small_jobs_are_kept(rows: int, tmp_path: Path):
    x = np.arange(rows * 2, dtype="int32").reshape(rows, 2)
    program = tp.fold(tp.aggregators.Sum(), "row c -> c")
    for _ in range(2):
        job = tp.stream(program, {"row": tp.chunks(size=4)}, x, checkpoint=tmp_path / "run", save_every=1)
        np.testing.assert_array_equal(job.run(), x.sum(0))


def test_bfloat16_is_spilled(tmp_path: Path, stopping: Any):
    x = (np.arange(24) % 7).reshape(12, 2).astype(jax.numpy.bfloat16)

    @tp.program("row c -> row c")
    def program(x: Any) -> Any:
        y = tp.scan(tp.aggregators.Max(), "row c -> row c", over="row")(x)
        return tp.Map(lambda a, b: a - b, "row c, c -> row c")(y, tp.fold(tp.aggregators.Max(), "row c -> c")(y))

    over = {"row": tp.chunks(size=4)}
    stopping(4, False)
    with pytest.raises(Stop):
        tp.stream(program, over, x, checkpoint=tmp_path / "run", save_every=1).run()
    stopping(None, False)
    got = tp.stream(program, over, x, checkpoint=tmp_path / "run", save_every=1).run()
    assert got.tobytes() == np.asarray(program(x)).tobytes() and got.dtype == x.dtype


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"checkpoint": 3}, "checkpoint= of tp.stream is a folder\n  got 3"),
        ({"checkpoint": "run", "save_every": 0}, "expected a number of turns, or seconds as text\n  got 0"),
        ({"checkpoint": "run", "save_every": "soon"}, "got 'soon'"),
        ({"checkpoint": "run", "save_every": "-1s"}, "got '-1s'"),
        ({"checkpoint": "run", "save_every": "nans"}, "got 'nans'"),
    ],
)
def test_wrong_words_are_told(words: Any, told: str):
    with pytest.raises(tp.PlanError) as caught:
        tp.stream(
            tp.fold(tp.aggregators.Sum(), "row -> "), {"row": tp.chunks(size=2)}, np.arange(4, dtype="int32"), **words
        )
    assert told in str(caught.value)


@pytest.mark.parametrize("damage", [-1, 130])
def test_a_result_in_the_folder_is_given_again_as_it_was_or_not_at_all(tmp_path: Path, damage: int):
    x = np.arange(20, dtype=np.int32).reshape(10, 2)

    def job() -> Any:
        tripled = tp.Map(lambda a: a * 3, "row c -> row c")
        return tp.stream(tripled, {"row": tp.chunks(size=3)}, x, checkpoint=tmp_path / "job", save_every=1)

    for _ in range(2):
        np.testing.assert_array_equal(job().run(), x * 3)
    (place,) = (tmp_path / "job").glob("pass-*.npy")
    content = bytearray(place.read_bytes())
    content[damage] ^= 1
    place.write_bytes(content)
    with pytest.raises(StreamError, match="a file in it was written since, or is damaged"):
        job().run()


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (None, "it is not there"),
        (np.int32(3), r"expected int32 \(2,\), got int32 \(\)"),
        (np.zeros(2, np.float32), "got float32"),
    ],
)
def test_a_finished_state_with_other_results_than_those_of_the_job_is_refused(output: Any, told: str, tmp_path: Path):
    """As somebody writes it who knows its checksums."""
    x = np.arange(20, dtype=np.int32).reshape(10, 2)

    def job() -> Any:
        total = tp.fold(tp.aggregators.Sum(), "row c -> c")
        return tp.stream(total, {"row": tp.chunks(size=3)}, x, checkpoint=tmp_path / "job")

    job().run()
    frozen = load(tmp_path / "job")
    assert frozen is not None
    others = {name: array for name, array in frozen.arrays.items() if name != "output/0"}
    save(tmp_path / "job", replace(frozen, arrays=others if output is None else others | {"output/0": output}))
    with pytest.raises(StreamError, match=f"none of its results: .*{told}"):
        job().run()


def test_a_folder_in_the_place_of_what_was_begun_is_refused(tmp_path: Path, stopping: Any):
    stopping(2, False)
    with pytest.raises(Stop):
        ran("running", 8, tmp_path)
    (place,) = (tmp_path / "run").glob("*.npy.partial")
    place.unlink()
    place.mkdir()
    stopping(None, False)
    with pytest.raises(tp.TapestryError, match="cannot go on with a tensor"):
        ran("running", 8, tmp_path)
