"""A cluster whose one worker is a thread of this process: faults that tests plant here are its own as well."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def worker_in_this_process() -> Generator[Any]:
    """A client of the cluster, for as long as it is needed; skips where `distributed` is not installed."""
    distributed = pytest.importorskip("distributed")
    how: dict[str, Any] = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    # Any free port: the usual one may be another cluster's.
    with (
        distributed.LocalCluster(**how, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found
