"""Clusters that nobody works for: told at once, given up after a time that Dask sets, gone on with when some come."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.cluster import waiting
from tapestry_jax.streaming.cluster.waiting import PATIENCE
from tapestry_jax.streaming.errors import StreamError

distributed = pytest.importorskip("distributed")
config = pytest.importorskip("dask.config")
TOLD = rf"the cluster at inproc://.* has no worker: one is waited for\n  for .* s: {PATIENCE}"
NONE = r"the cluster at inproc://.* has no worker to turn the chunks\n  expected one worker or more\n.*\n  Start work"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Nobody works for it yet."""
    monkeypatch.setattr(waiting, "_LOOK", 0.1)
    how: dict[str, Any] = {"processes": False, "n_workers": 0, "threads_per_worker": 1}
    with distributed.LocalCluster(**how, dashboard_address="127.0.0.1:0") as found:
        yield found


@pytest.fixture
def run(cluster: Any, tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """Runs a job on the cluster."""
    np.save(tmp_path / "x.npy", np.arange(20, dtype=np.int32).reshape(10, 2))
    total, over = tp.fold(tp.aggregators.Sum(), "row c -> c"), {"row": tp.chunks(size=5)}
    with distributed.Client(cluster) as client:
        kept = {"checkpoint": tmp_path / "run", "engine": client}
        yield lambda: tp.stream(total, over, tp.open(tmp_path / "x.npy"), **kept).run().tolist()


def test_workers_that_never_come_are_not_waited_for_without_end(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_SECONDS", 0.5)
    with pytest.warns(UserWarning, match=TOLD) as told, pytest.raises(StreamError, match=NONE):
        run()
    assert len(told) == 1


def test_dask_says_how_long(run: Any) -> None:
    told = pytest.warns(UserWarning, match=r"for 0\.7 s")
    with config.set({PATIENCE: "700ms"}), told, pytest.raises(StreamError, match=NONE):
        run()


def test_what_dask_itself_gives_up_is_told_so_too(run: Any, cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster.scheduler.no_workers_timeout = 0.5
    with caplog.at_level("CRITICAL"), pytest.warns(UserWarning, match=TOLD), pytest.raises(StreamError, match=NONE):
        run()


def test_workers_that_come_late_turn_the_job(run: Any, cluster: Any) -> None:
    threading.Timer(0.6, cluster.scale, (1,)).start()
    with pytest.warns(UserWarning, match=TOLD):
        assert run() == [90, 100]


def test_an_interrupt_does_not_wait_for_workers(run: Any, cluster: Any) -> None:
    main, begun = threading.main_thread().ident, time.monotonic()
    assert main is not None
    threading.Timer(0.6, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.warns(UserWarning, match=TOLD), pytest.raises(KeyboardInterrupt, match="run it again"):
        run()
    assert time.monotonic() - begun < 20
    cluster.scale(1)
    assert run() == [90, 100]
