"""Several processes on one fabric, killed at random moments: what is there is whole, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tests.forked import run
from tests.tapestry_jax.fabric.nursery import CHUNKS, X
from tests.thoroughly import thoroughly

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def nursery(folder: Path, errors: Path) -> Iterator[subprocess.Popen[str]]:
    with (
        errors.open("w") as told,
        subprocess.Popen(
            [sys.executable, "-m", "tests.tapestry_jax.fabric.nursery", str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def start(process: subprocess.Popen[str], seed: int) -> int:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{seed}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def check(folder: Path) -> None:
    """All tensors are whole; pairs belong together; no file is left that no version has."""
    with tp.Fabric(folder) as fabric:
        catalogue = fabric._opened.catalogue
        assert catalogue.ask("PRAGMA integrity_check") == [("ok",)]
        for name in fabric:
            assert fabric.check(name) == ()
        for name in ("x", "y"):
            found = fabric.read(name)
            assert (found == found[:, :1]).all() and found.all(), found
        if "more" in fabric:
            np.testing.assert_array_equal(fabric.read("more"), fabric.read("less") + 2)
            assert fabric.describe("more").made == fabric.describe("less").made
        named = {str(file) for (file,) in catalogue.ask("SELECT file FROM blocks WHERE file IS NOT NULL")}
        blocks = folder / "blocks"
        assert {path.relative_to(blocks).as_posix() for path in blocks.glob("*/[0-9]*")} == named
        assert catalogue.ask("SELECT * FROM pins") == [] == catalogue.ask("SELECT * FROM garbage")


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: waiting for a disk is not what is tested."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as name:
        yield Path(name)


def wait_for_end(child: int) -> None:
    """Until a process that was killed holds no lock any more."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError("it goes on")


def versions(fabric: tp.Fabric) -> int:
    """How many there ever were."""
    return int(fabric._opened.catalogue.ask("SELECT MAX(seq) FROM sqlite_sequence WHERE name = 'versions'")[0][0])


def wait_for_work(fabric: tp.Fabric, count: int) -> None:
    """Until somebody has written as many versions."""
    target = versions(fabric) + count
    for _ in range(10_000):
        if versions(fabric) >= target:
            return
        time.sleep(0.002)
    raise AssertionError("nobody works")


def test_processes_that_are_killed_leave_a_whole_fabric(quick_folder: Path):
    kills, draw = (300 if thoroughly() else 15), random.Random(0)
    folder, errors = quick_folder / "fabric", quick_folder / "errors"
    with tp.Fabric(folder) as fabric:
        for name in ("x", "y"):
            fabric.allocate(name, X, chunks=CHUNKS)
            fabric.write(name, np.ones(X.shape, np.int32))
        with nursery(folder, errors) as process:
            running = [start(process, seed) for seed in range(3)]
            for seed in range(3, 3 + kills):
                wait_for_work(fabric, draw.randrange(4))
                time.sleep(draw.uniform(0.0, 0.02))
                os.kill(running.pop(draw.randrange(3)), signal.SIGKILL)
                running.append(start(process, seed))
            wait_for_work(fabric, 8)
            for child in running:
                os.kill(child, signal.SIGKILL)
                wait_for_end(child)
    assert errors.read_text() == ""
    check(folder)


def test_fabric_does_not_go_over_a_fork(tmp_path: Path):
    code = """
import os, sys, tapestry_jax as tp
fabric = tp.Fabric(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        fabric.list()
    except tp.FabricError as error:
        print(error)
    fabric.close()
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
fabric.allocate("x", tp.TensorType((2,)))
print(fabric.list())
"""
    done = run(code, tmp_path / "f")
    assert done.stdout.splitlines() == [
        "a fabric does not go over a fork",
        "  Open the fabric in the process that uses it: tp.Fabric(path).",
        "('x',)",
    ], done.stderr


@pytest.mark.parametrize("moment", ["before", "after"])
def test_apply_that_is_killed_leaves_the_old_state(tmp_path: Path, moment: str):
    code = """
import os, sys, numpy as np, tapestry_jax as tp
from tapestry_jax.fabric.catalogue import writes
fabric = tp.Fabric(sys.argv[1])
fabric.load("x", np.arange(4, dtype=np.int32))
old, count = writes.name_version, []
def dies(catalogue, name, number):
    count.append(name)
    if sys.argv[2] == "before" and len(count) == 2:
        os.kill(os.getpid(), 9)
    old(catalogue, name, number)
writes.name_version = dies
if sys.argv[2] == "after":
    type(fabric._opened).cleared = lambda self: os.kill(os.getpid(), 9)
fabric.apply(lambda x: (x + 1, x - 1), "x", out=("a", "b"))
"""
    folder = tmp_path / "f"
    done = run(code, folder, moment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with tp.Fabric(folder) as fabric:
        assert fabric.list() == (("x",) if moment == "before" else ("a", "b", "x"))
        if moment == "after":
            assert fabric.read("b").tolist() == [-1, 0, 1, 2]
        files = list((folder / "blocks").glob("*/[0-9]*"))
        assert len(files) == (1 if moment == "before" else 3)
