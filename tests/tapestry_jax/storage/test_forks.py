"""A tensor that was opened before a fork: its threads are not there, so it is refused, and not waited for."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import save, stored
from tests.tapestry_jax.storage.round_trips import made, numbers, read

X = numbers((8, 3))
REFUSED = 7


def status_of_child(call: Callable[[], Any]) -> int:
    """What a forked process ends with: REFUSED where the call is refused in our words, -1 where it hangs."""
    with warnings.catch_warnings():
        # JAX warns of forks; the child touches no device.
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        status = 1
        try:
            call()
            status = 0
        except tp.StorageError as error:
            status = REFUSED if "was opened before this process was forked" in str(error) else 2
        finally:
            os._exit(status)
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def opened(folder: Path, name: str) -> Any:
    if name.endswith((".npy", ".zarr")):
        return made(folder / name, X)
    if name == "fabric":
        fabric = tp.Fabric(None)
        fabric.load("x", X)
        return fabric.open("x")
    save(folder / name, {"x": stored(X)})
    return tp.open(folder / name)


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.parquet", "x.duckdb", "fabric"])
def test_sources_are_refused_after_a_fork_and_go_on_before_it(tmp_path: Path, name: str):
    source = opened(tmp_path, name)
    np.testing.assert_array_equal(read(source), X)
    assert status_of_child(lambda: read(source)) == REFUSED
    assert status_of_child(source.close) == 0
    np.testing.assert_array_equal(read(source), X)
    source.close()


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_sinks_are_refused_after_a_fork_and_go_on_before_it(tmp_path: Path, name: str):
    sink = tp.create(tmp_path / name, chunks=(2, 3)).make(X.shape, X.dtype)
    sink.write(((0, 2), (0, 3)), X[:2]).result()
    for call in (lambda: sink.write(((2, 8), (0, 3)), X[2:]).result(), sink.flush, sink.finish):
        assert status_of_child(call) == REFUSED
    assert status_of_child(sink.close) == 0
    sink.write(((2, 8), (0, 3)), X[2:]).result()
    np.testing.assert_array_equal(read(sink.finish()), X)
