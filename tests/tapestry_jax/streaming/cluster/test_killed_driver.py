"""SIGKILL of a driver, with its workers behind it; it is started again, and runs what was not committed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tapestry_jax.streaming.kept.partials import PARTIALS

ROOT = Path(__file__).parents[4]


@pytest.mark.thorough
def test_a_killed_driver_goes_on_with_what_is_committed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32))

    def begin(run: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.tapestry_jax.streaming.cluster.killed_driver", str(tmp_path), run]
        return subprocess.Popen(
            words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        )

    first, limit = begin("killed"), time.monotonic() + 120
    while len([*(tmp_path / "killed" / PARTIALS).glob("*/turns-*")]) < 8:
        assert first.poll() is None and time.monotonic() < limit
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)  # its workers, which have the same output, end when their scheduler is gone
    committed = len([*(tmp_path / "killed" / PARTIALS).glob("*/turns-*")])
    assert 8 <= committed < 50
    told = {}
    for run in ("killed", "whole"):
        told[run], _ = (process := begin(run)).communicate(timeout=200)
        assert process.returncode == 0
    assert json.loads(told["killed"]) == [50 - committed] and json.loads(told["whole"]) == [50]
    with np.load(tmp_path / "killed.npz") as a, np.load(tmp_path / "whole.npz") as b:
        assert a.files == b.files and all(a[name].tobytes() == b[name].tobytes() for name in a.files)
