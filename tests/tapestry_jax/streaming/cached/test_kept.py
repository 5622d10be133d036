"""`cache=` and `checkpoint=` together: a job that is killed goes on, and what it has made is there for others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.kept import checkpoint
from tests.tapestry_jax.streaming.cached.test_cached import OVER, X, centred, spread
from tests.tapestry_jax.streaming.whole import whole

agg = tp.aggregators
WANT = X - X.mean(0)


class Stop(BaseException):
    """What ends a job here, in the place of SIGKILL."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Ends what runs behind its n-th state."""
    write, left = checkpoint.save, [0]

    def stopped(folder: Any, frozen: Any) -> int:
        left[0] -= 1
        written = write(folder, frozen)
        if left[0] == 0:
            raise Stop
        return written

    monkeypatch.setattr(checkpoint, "save", stopped)
    return lambda count: left.__setitem__(0, count)


def job(program: Any, run: str | None = "run", **more: Any) -> Any:
    kept = {} if run is None else {"checkpoint": run, "save_every": 1}
    return tp.stream(program, OVER, tp.open("x.npy"), cache="cache", **kept, **more)


def turned(program: Any, run: str | None = "run", want: Any = WANT, **more: Any) -> int:
    """Run a job to its end; the bytes that it has read."""
    each = job(program, run, **more)
    np.testing.assert_allclose(whole(each.run()), want, atol=1e-5)
    return sum(meter.metrics().stage("read").bytes for meter in each.meters)


def test_a_job_that_stops_at_every_state_goes_on_and_is_found(stopping: Any) -> None:
    stops = 0
    for _ in range(40):
        stopping(2)
        try:
            turned(centred)
            break
        except Stop:
            stops += 1
    # Two passes of six turns: the first try does one of them, the others two.
    assert stops == 7
    stopping(0)
    assert turned(centred, "other") == turned(centred, None) == 0
    assert not Path("other").exists()


def test_what_others_have_made_meanwhile_changes_no_job_that_is_under_way(stopping: Any) -> None:
    stopping(9)
    with pytest.raises(Stop):
        job(centred).run()
    stopping(0)
    # The mean is in the cache by now, from this job itself; another one finishes all of it but for the output's square.
    turned(tp.fold(agg.Mean(), "row c -> c"), None, X.mean(0))
    assert turned(centred) < X.nbytes


@pytest.mark.parametrize("prunes", [False, True])
def test_what_is_left_goes_on_from_what_it_has_begun_with(prunes: bool, stopping: Any) -> None:
    turned(tp.fold(agg.Mean(), "row c -> c"), None, X.mean(0))
    stopping(4)
    with pytest.raises(Stop):
        job(spread).run()
    stopping(0)
    assert [path.name for path in Path("run").iterdir()] == ["rest"]
    if prunes:
        tp.prune_cache("cache")
        assert turned(spread, want=abs(WANT).max(0)) == 2 * X.nbytes
        return
    # More is known now than it was begun with, but for its own output.
    turned(centred, None)
    assert turned(spread, want=abs(WANT).max(0)) < X.nbytes
    assert turned(spread, "again", abs(WANT).max(0)) == 0


def test_outputs_in_files_and_in_the_folder_are_found(tmp_path: Path) -> None:
    assert turned(centred, sinks=tp.create("y.zarr")) == 2 * X.nbytes
    assert turned(centred, "other") == turned(centred, None) == 0
    tp.prune_cache("cache")
    shutil.rmtree("run")
    assert turned(centred, "other") == 2 * X.nbytes
    # It lies in the folder of the job, and is not stored twice.
    assert turned(centred, None) == 0 and not list(Path("cache").glob("*.zarr"))
    shutil.rmtree("other")
    assert turned(centred, None) == X.nbytes


def test_a_job_that_has_finished_gives_its_sink_again(tmp_path: Path) -> None:
    sink = tp.create(tmp_path / "y.zarr")
    assert turned(centred, sinks=sink) == 2 * X.nbytes
    # Every output is in the cache, and its file is where the sink would be made.
    assert turned(centred, sinks=sink) == 0
    with pytest.raises(tp.StorageError, match="is there already"):
        turned(centred, "other", sinks=sink)


def test_an_output_in_a_fabric_is_its_own_and_not_kept(tmp_path: Path) -> None:
    with tp.Fabric(tmp_path / "fabric") as fabric:
        # The cache names files, and there is none.
        assert turned(centred, sinks=fabric.create("y")) == 2 * X.nbytes
        np.testing.assert_allclose(fabric.read("y"), WANT, atol=1e-5)
        assert turned(centred, "other") == X.nbytes  # the mean alone was kept
