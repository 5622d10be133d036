"""Clusters of tests: one worker that is a thread of this process, and workers that are forked, not started."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import forked


@contextmanager
def worker_in_this_process() -> Generator[Any]:
    """A client of a cluster, for as long as it is needed; skips where `distributed` is not installed.

    Its one worker is a thread of this process: faults that tests plant here are its own as well.
    """
    distributed = pytest.importorskip("distributed")
    how: dict[str, Any] = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    # Any free port: the usual one may be another cluster's.
    with (
        distributed.LocalCluster(**how, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@contextmanager
def forked_workers() -> Generator[None]:
    """Clusters that are made meanwhile fork their workers from one process that has imported the library.

    Skips where `distributed` is not installed.
    """
    pytest.importorskip("distributed")
    config = pytest.importorskip("dask.config")
    # Dask names packages to be imported, too; what runs already imports no more.
    forked.start()
    with config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield
