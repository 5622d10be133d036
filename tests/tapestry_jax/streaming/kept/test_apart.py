"""What a job reads, writes and keeps lies apart; where something fails nothing is left open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.errors import StreamError

X = np.arange(60, dtype=np.int32).reshape(20, 3)
FOUR = {"row": tp.chunks(size=4)}
twice = tp.Map(lambda a: a * 2, "row c -> row c")
total = tp.fold(tp.aggregators.Sum(), "row c -> c")


@tp.program("row c -> row c, row c")
def levels(x: Any) -> Any:
    largest = tp.fold(tp.aggregators.Max(), "row c -> c")(x)
    return twice(x), tp.Map(lambda a, b: a - b, "row c, c -> row c")(x, largest)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """An array of Zarr, in the folder where the process is."""
    monkeypatch.chdir(tmp_path)
    tp.stream(twice, FOUR, X, tp.create("x.zarr")).run().close()
    return tp.open("x.zarr")


def read(stored: Any) -> Any:
    array = np.empty(stored.shape, stored.dtype)
    stored.read(tuple((0, size) for size in stored.shape), array).result()
    return array


@pytest.mark.parametrize(
    ("program", "sinks", "keep", "says"),
    [
        (levels, ("y.npy", "y.npy"), None, "the sink of `y/1` and the sink of `y/0`"),
        (levels, ("y.zarr", "y.zarr/inner.npy"), None, "the sink of `y/1` and the sink of `y/0`"),
        (twice, ("x.zarr/y.zarr",), None, "the sink of `y` and the source `x`"),
        (twice, ("x.zarr",), "run", "the sink of `y` and the source `x`"),
        (levels, ("x.zarr", "y.npy"), None, "the sink of `y/0` and the source `x`"),
        (twice, ("y.zarr",), "y.zarr/run", "the folder checkpoint= and the sink of `y`"),
        (twice, ("run/y.npy",), "run", "the folder checkpoint= and the sink of `y`"),
        (twice, ("y.npy",), "x.zarr/run", "the folder checkpoint= and the source `x`"),
    ],
)
def test_places_that_are_in_each_others_way_are_refused(
    source: Stored, program: Any, sinks: tuple[str, ...], keep: str | None, says: str
) -> None:
    graph, before = tp.trace(program, source), sorted(os.walk("."))
    named = zip([name for name, _ in graph.outputs], sinks, strict=True)
    creations = {name: tp.create(path, overwrite=True) for name, path in named}
    with pytest.raises(tp.PlanError, match=f"{says} are in each other's way"):
        tp.stream(graph, FOUR, source, creations, checkpoint=keep)
    assert sorted(os.walk(".")) == before


def test_a_result_takes_the_place_of_a_source_that_is_read_once(source: Stored) -> None:
    made = tp.stream(twice, FOUR, source, tp.create("x.zarr", overwrite=True)).run()
    assert (read(made) == 4 * X).all()


def test_a_sink_can_be_made_again_after_an_error(source: Stored) -> None:
    chunk = next(path for path in Path("x.zarr/c").rglob("*") if path.is_file())
    kept = chunk.read_bytes()
    chunk.write_bytes(b"damaged")
    job = tp.stream(twice, FOUR, source, tp.create("y.npy"))
    for _ in range(2):
        with pytest.raises(tp.FormatError, match=r"`x.zarr` is damaged"):
            job.run()
    chunk.write_bytes(kept)
    assert (read(job.run()) == 4 * X).all()
    Path("z.npy").touch()
    both = tp.trace(levels, source)
    job = tp.stream(both, FOUR, source, {"y/0": tp.create("w.npy"), "y/1": tp.create("z.npy")})
    with pytest.raises(tp.FormatError, match=r"z.npy` is there already"):
        job.run()
    Path("z.npy").unlink()
    assert (read(job.run()[0]) == 4 * X).all()


def test_what_is_whole_on_the_devices_goes_to_sinks_too(tmp_path: Path) -> None:
    for number, rows in enumerate((0, 1, 3, 4, 20)):
        x, places = X[:rows], (tmp_path / f"{number}.npy", tmp_path / f"{number}.zarr")
        graph = tp.trace(lambda x: (twice(x), total(x)), tp.TensorType({"row": rows, "c": 3}, np.int32))
        sinks = dict(zip(("y/0", "y/1"), map(tp.create, places), strict=True))
        made, summed = tp.stream(graph, FOUR, x, sinks, checkpoint=tmp_path / f"run{number}").run()
        assert (read(made) == 2 * x).all() and (read(summed) == x.sum(0)).all()
        again = tp.stream(graph, FOUR, x, sinks, checkpoint=tmp_path / f"run{number}").run()
        assert (read(again[0]) == 2 * x).all() and (read(again[1]) == x.sum(0)).all()


class Changing:
    """A source into which somebody else writes at its fifth reading, or another one."""

    def __init__(self, stored: Stored, at: int = 5) -> None:
        self.stored, self.reads, self.at = stored, 0, at
        self.shape, self.dtype, self.names = stored.shape, stored.dtype, stored.names
        self.chunks, self.where, self.beside = stored.chunks, stored.where, stored.beside
        self.close, self.fingerprint = stored.close, stored.fingerprint

    def read(self, box: Any, into: Any) -> Any:
        self.reads += 1
        if self.reads == self.at:
            tp.stream(twice, FOUR, 7 * X, tp.create(self.where, overwrite=True)).run().close()
        return self.stored.read(box, into)


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_a_source_that_is_written_while_it_is_read_is_told(source: Stored, name: str) -> None:
    del source
    np.save("x.npy", X)
    changing = Changing(tp.open(name))
    with pytest.raises(StreamError, match=f"a source was written while the stream read it: {name}"):
        tp.stream(twice, {"row": tp.chunks(size=1)}, changing, tp.create("y.npy")).run()
    assert not Path("y.npy").exists()


def test_a_source_that_is_read_whole_and_written_meanwhile_is_told(source: Stored) -> None:
    np.save("y.npy", X)
    less = tp.Map(lambda a, b: a - b.max(0), "row c, [i] c -> row c")
    with pytest.raises(StreamError, match=r"a source was written while the stream read it: y.npy"):
        tp.stream(less, FOUR, (source, Changing(tp.open("y.npy"), at=1)), tp.create("z.npy")).run()


@pytest.mark.parametrize("words", [{}, {"checkpoint": "run"}, {"cache": "cache"}], ids=str)
def test_a_source_in_whose_place_lies_another_is_read_as_neither(source: Stored, words: Any) -> None:
    del source
    np.save("x.npy", X)
    source = tp.open("x.npy")
    tp.stream(twice, FOUR, source, tp.create("x.npy", overwrite=True)).run().close()
    with pytest.raises(tp.StorageError, match=r"x\.npy` was written since it was opened"):
        tp.stream(twice, FOUR, source, **words).run()
    assert (tp.stream(twice, FOUR, tp.open("x.npy"), **words).run() == 4 * X).all()


def test_results_that_were_written_or_removed_are_not_given_again(source: Stored) -> None:
    def job() -> Any:
        return tp.stream(twice, FOUR, source, tp.create("y.npy"), checkpoint="run").run()

    assert (read(job()) == 4 * X).all() and (read(job()) == 4 * X).all()
    np.save("y.npy", X)
    with pytest.raises(StreamError, match=r"its result is not there any more\n  `.*y.npy` was written since"):
        job()
    Path("y.npy").unlink()
    with pytest.raises(StreamError, match=r"its result is not there any more\n  StorageError: `.*y.npy` was not begun"):
        job()


def test_an_output_that_is_an_input_is_given_again(tmp_path: Path) -> None:
    for _ in range(2):
        given, made = tp.stream(lambda x: (x, twice(x)), FOUR, X, checkpoint=tmp_path / "run").run()
        assert (given == X).all() and (made == 2 * X).all()


def test_what_stands_before_the_first_pass_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tapestry_jax.streaming.kept import checkpoint

    program = tp.Map(lambda a, b: a * b, "row c, c -> row c")
    planned = tp.plan(
        tp.trace(lambda x, w: program(x, tp.Map(lambda b: b + 1, "c -> c")(w)), X, X[0]),
        tp.mesh(data=2),
        {"row": ("data", tp.chunks(size=2))},
    )

    def job() -> Any:
        return tp.stream(planned, "row", (X, X[1]), checkpoint=tmp_path / "run", save_every=1)

    save = checkpoint.save

    def stopped(folder: Any, frozen: Any) -> None:
        save(folder, frozen)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        job().run()
    monkeypatch.setattr(checkpoint, "save", save)
    assert (job().run() == X * (X[1] + 1)).all()


@pytest.mark.parametrize("extends", [False, True])
def test_a_folder_that_holds_other_files_is_no_folder_of_a_job(source: Stored, tmp_path: Path, extends: bool):
    for name in ("notes.txt", "a.py", "b.py", "rows.npy", ".partial-mine"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).write_text("mine")
    job = tp.stream(total, FOUR, source, checkpoint="run")
    run = (lambda: job.extend(source, mode="reset")) if extends else job.run
    with pytest.raises(
        StreamError, match=r"run is no folder of a job\n  it holds \.partial-mine, a\.py, b\.py and 2 more"
    ):
        run()
    assert {each.read_text() for each in (tmp_path / "run").iterdir()} == {"mine"}
    assert len([*(tmp_path / "run").iterdir()]) == 5


def test_a_folder_that_was_a_jobs_may_hold_anything(source: Stored, tmp_path: Path):
    run = tmp_path / "run"
    (run / "lost+found").mkdir(parents=True)
    (run / ".gitkeep").touch()
    np.save(run / "new.npy", X)
    inside = tp.open(run / "new.npy")
    # A source of the job may lie in its folder.
    assert tp.stream(total, FOUR, inside, checkpoint=run).run().tolist() == X.sum(0).tolist()
    (run / "notes.txt").touch()
    (run / "lock").unlink()
    assert tp.stream(total, FOUR, inside, checkpoint=run).run().tolist() == X.sum(0).tolist()
