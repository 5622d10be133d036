"""What cannot run on workers is refused before anything runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp

total = tp.fold(tp.aggregators.Sum(), "row c -> c")
running = tp.scan(tp.aggregators.Sum(), "row c -> row c", over="row")


def refused(program: Any, source: Any, **more: Any) -> str:
    given = {"checkpoint": "run", "engine": "dask", "over": {"row": tp.chunks(size=2)}} | more
    with pytest.raises(tp.PlanError) as caught:
        tp.stream(program, sources=source, **given)
    return str(caught.value)


@pytest.fixture
def source(tmp_path: Path) -> Any:
    np.save(tmp_path / "x.npy", np.zeros((8, 3), np.float32))
    return tp.open(tmp_path / "x.npy")


def test_what_cannot_run_on_workers_is_refused_with_the_reason(source: Any) -> None:
    said = refused(total, source, checkpoint=None)
    assert "needs a folder that the driver and the workers have" in said and 'checkpoint="run/"' in said
    said = refused(running, source, over={"row": tp.chunks(size=2), "c": tp.chunks(size=1)})
    assert "pass 1 scans `row`" in said and "it scans in a loop inside of its turns" in said
    said = refused(total, np.zeros((8, 3), np.float32))
    assert "an array in memory" in said and "what tp.open gives" in said
    said = refused(total, source, mesh=tp.mesh(data=2))
    assert "a mesh of one device" in said and "this one has 2" in said


def test_an_engine_is_a_client_or_dask(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("ray", 3, object()):
        assert "expected a client of dask.distributed" in refused(total, source, engine=wrong)
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'tapestry-jax[cluster]'" in refused(total, source)


def test_a_job_of_one_process_does_not_go_on_with_workers(source: Any, tmp_path: Path) -> None:
    over, folder = {"row": tp.chunks(size=2)}, tmp_path / "run"
    tp.stream(total, over, source, checkpoint=folder).run()
    # No cluster is needed to be refused.
    job = replace(tp.stream(total, over, source, checkpoint=folder, engine="dask"), engine=object())
    with pytest.raises(tp.TapestryError, match="engine: was not there, and is workers now"):
        job.run()
