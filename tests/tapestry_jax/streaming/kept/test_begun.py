"""Sinks in whose places another job has begun its own while the first one was stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import load, save
from tapestry_jax.streaming.jobs.outputs import whole
from tests.tapestry_jax.streaming.kept.stops import Stop

X = np.arange(24, dtype=np.int32).reshape(12, 2)
twice = tp.Map(lambda a: a * 2, "row c -> row c")
thrice = tp.Map(lambda a: a * 3, "row c -> row c")


@tp.program("row c -> row c")
def centred(x: Any) -> Any:
    largest = tp.fold(tp.aggregators.Max(), "row c -> c")(x)
    return tp.Map(lambda a, b: a - b, "row c, c -> row c")(x, largest)


def job(program: Any, folder: Path, name: str | Any) -> Any:
    sink = tp.create(folder.parent / name) if isinstance(name, str) else name
    return tp.stream(program, {"row": tp.chunks(size=2)}, X, sink, checkpoint=folder, save_every=1)


@pytest.mark.parametrize("states", [1, 3])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("name", ["y.npy", "y.zarr"])
def test_cells_of_another_job_are_not_taken_for_its_own(
    tmp_path: Path, stopping: Any, name: str, ends: bool, states: int
):
    stopping(states, False)
    with pytest.raises(Stop):
        job(twice, tmp_path / "one", name).run()
    stopping(None if ends else 5, False)
    if ends:
        job(thrice, tmp_path / "two", name).run().close()
    else:
        with pytest.raises(Stop):
            job(thrice, tmp_path / "two", name).run()
        stopping(None, False)
    with pytest.raises(StreamError, match=r"another job has begun a sink of the one in .*one anew since"):
        job(twice, tmp_path / "one", name).run()
    made = job(thrice, tmp_path / "two", name).run()
    assert (whole(made) == 3 * X).all()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", name}


def test_nor_are_those_under_a_name_in_a_fabric(tmp_path: Path, stopping: Any):
    with tp.Fabric(tmp_path / "f") as fabric:
        for program, folder, states in ((twice, "one", 3), (thrice, "two", 5)):
            stopping(states, False)
            with pytest.raises(Stop):
                job(program, tmp_path / folder, fabric.create("y")).run()
        stopping(None, False)
        with pytest.raises(StreamError, match=r"another job has begun a sink of the one in .*one anew since"):
            job(twice, tmp_path / "one", fabric.create("y")).run()
        job(thrice, tmp_path / "two", fabric.create("y")).run().close()
        assert (fabric.read("y") == 3 * X).all()


def test_states_and_sinks_of_earlier_releases_are_gone_on_with_and_know_their_sinks_then(tmp_path: Path, stopping: Any):
    stopping(1, False)
    with pytest.raises(Stop):
        job(centred, tmp_path / "one", "y.npy").run()
    filled, before = tmp_path / "y.npy.partial.filled", load(tmp_path / "one")
    assert before is not None
    filled.write_text(json.dumps(json.loads(filled.read_text())["boxes"]))
    save(tmp_path / "one", replace(before, arrays={}))
    # In the first pass, which does not write it, and in the second one.
    for states in (2, 6):
        stopping(states, False)
        with pytest.raises(Stop):
            job(centred, tmp_path / "one", "y.npy").run()
    stopping(None, False)
    made = job(centred, tmp_path / "one", "y.npy").run()
    assert (whole(made) == X - X.max(0)).all()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "y.npy"}


def test_a_job_knows_its_sink_that_was_in_its_place_before_that_was_kept(tmp_path: Path, stopping: Any):
    stopping(8, True)
    with pytest.raises(Stop):
        job(twice, tmp_path / "one", "y.npy").run()
    assert (tmp_path / "y.npy").exists()
    stopping(None, False)
    assert (whole(job(twice, tmp_path / "one", "y.npy").run()) == 2 * X).all()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "y.npy"}


@pytest.mark.parametrize("kept", [True, False])
def test_a_job_gives_its_result_that_has_its_name_in_a_fabric_before_that_was_kept(
    tmp_path: Path, stopping: Any, monkeypatch: pytest.MonkeyPatch, kept: bool
):
    def run() -> Any:
        with tp.Fabric(tmp_path / "f") as fabric:
            made = job(twice, tmp_path / "one", fabric.create("y")).run()
            array = whole(made)
            made.close()
            return array

    stopping(8 if kept else 2, True)
    if not kept:  # all turns are made again
        monkeypatch.setattr("tapestry_jax.streaming.kept.checkpoint._Keeper.is_due", lambda *_: False)
    with pytest.raises(Stop):
        run()
    monkeypatch.undo()
    with tp.Fabric(tmp_path / "f") as fabric:
        assert (fabric.read("y") == 2 * X).all()
        if kept:
            names = fabric.describe("y").type.names
            fabric.snapshot("before")
            fabric.load("y", 2 * X, names=names, overwrite=True)
            with pytest.raises(StreamError, match=r"another job has begun a sink of the one in .*one anew since"):
                run()
            fabric.restore("before")
    assert (run() == 2 * X).all()
    assert (run() == 2 * X).all()
