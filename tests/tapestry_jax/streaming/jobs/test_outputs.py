"""What comes back for outputs: each tells its own file, wherever the process has gone; what can be pickled."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import stored

X = np.arange(12, dtype=np.int32).reshape(6, 2)
TWO = {"row": tp.chunks(size=2)}
total = tp.fold(tp.aggregators.Sum(), "row c -> c")


def read(found: Any) -> Any:
    array = np.empty(found.shape, found.dtype)
    found.read(tuple((0, size) for size in found.shape), array).result()
    return array


@pytest.mark.parametrize("keep", [None, "run"])
def test_outputs_of_one_value_tell_their_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str | None
) -> None:
    monkeypatch.chdir(tmp_path)

    def program(x: Any) -> Any:
        more, summed = tp.Map(lambda a: a + 1)(x), total(x)
        return more, summed, more, summed, more

    graph = tp.trace(program, tp.TensorType({"row": 6, "c": 2}, np.int32))
    places = {"y/4": "last.npy", "y/0": "first.npy", "y/2": "then.zarr", "y/3": "sum.npy", "y/1": "total.npy"}
    sinks = {name: tp.create(place, overwrite=True) for name, place in places.items()}
    for _ in range(1 if keep is None else 2):
        made = tp.stream(graph, TWO, X, sinks, checkpoint=keep).run()
        for number, each in enumerate(made):
            assert Path(each.where) == tmp_path / places[f"y/{number}"]
            assert (read(each) == (X.sum(0) if number in (1, 3) else X + 1)).all()


def test_a_sink_stays_where_it_was_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    for name in ("y.npy", "y.zarr", "y.safetensors"):
        os.chdir(tmp_path)
        sink = tp.create(f"a/{name}").make((6, 2), np.int32)
        os.chdir("b")
        sink.write(((0, 6), (0, 2)), X).result()
        sink.flush()
        assert (read(sink.finish()) == X).all()
        assert (tmp_path / "a" / name).exists() and not any((tmp_path / "b").iterdir())


def test_sources_and_sinks_are_pickled_by_how_they_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.savez("x.npz", a=X, b=X + 1)
    sources = [tp.open("x.npy", names=("row", "c")), tp.open("x.npz", "b"), stored(X, names=("row", None))]
    texts = [pickle.dumps(each) for each in (*sources, tp.create("y.npy"))]
    (tmp_path / "elsewhere").mkdir()
    os.chdir("elsewhere")
    *again, creation = map(pickle.loads, texts)
    for old, new, number in zip(sources, again, (0, 1, 0), strict=True):
        assert (read(new) == X + number).all() and new.names == old.names
    job = tp.stream(total, TWO, again[0], {"y": creation})
    assert (read(job.run()) == X.sum(0)).all() and (tmp_path / "y.npy").exists()


def test_what_cannot_be_pickled_says_so(tmp_path: Path) -> None:
    job = tp.stream(total, TWO, X)
    with pytest.raises(TypeError, match=r"a job cannot be pickled: .*\n  Hand on what tp.stream was given"):
        pickle.dumps(job)
    sink = tp.create(tmp_path / "y.zarr").make((6, 2), np.int32)
    with pytest.raises(TypeError, match=r"y.zarr` cannot be pickled: no tp.open has opened it\n  Hand its place on"):
        pickle.dumps(sink)
    sink.close()
