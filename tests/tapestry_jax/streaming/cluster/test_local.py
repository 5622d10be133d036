"""The cluster of a job: what keeps it from starting is told once, with what to do."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.cluster.local import local_client
from tapestry_jax.streaming.errors import StreamError

distributed = pytest.importorskip("distributed")


def test_a_cluster_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(**_: Any) -> None:
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(distributed, "LocalCluster", dies)
    told = r"the cluster of 3 workers did not start\n.*\n.*Nanny failed to start\.\n  Run the job again; in a script"
    with pytest.raises(StreamError, match=told), local_client(3):
        raise AssertionError


def test_a_script_that_is_imported_anew_begins_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    own = multiprocessing.current_process()
    monkeypatch.setattr(own, "_inheriting", True, raising=False)
    with pytest.raises(tp.PlanError, match=r'under `if __name__ == "__main__":`'), local_client(1):
        raise AssertionError
    # A worker of Dask dies without a word: it is waited for, and who waits says it.
    monkeypatch.setattr(own, "_name", "Dask Worker process (from Nanny)")
    with pytest.raises(SystemExit) as ended, local_client(1):
        raise AssertionError
    assert ended.value.code == 1
