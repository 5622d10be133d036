"""Sinks in whose places another job has begun its own while the first one was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.jobs.outputs import whole
from tests.tapestry_jax.streaming.kept.stops import Stop

X = np.arange(24, dtype=np.int32).reshape(12, 2)
twice = tp.Map(lambda a: a * 2, "row c -> row c")
thrice = tp.Map(lambda a: a * 3, "row c -> row c")


def job(program: Any, folder: Path, name: str) -> Any:
    sink = tp.create(folder.parent / name)
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
