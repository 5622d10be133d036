"""Several processes, each with devices of its own, train as one does: `jax.distributed`, with gloo between CPUs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.quickly import PROCESS
from tests.tapestry_jax.nnx.training.one_of_several import batch, losses, trainer_of

ROOT = Path(__file__).parents[4]


def test_two_processes_give_the_losses_of_one(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("one_of_several.py")
    environment = {**os.environ, **PROCESS, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-m", "tests.quickly", script, "2", str(port), tmp_path / "two"]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        try:
            _, said = running.communicate(timeout=300)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    assert running.returncode == 0, said[-4000:]
    told = [json.loads((tmp_path / f"two-{number}.json").read_text()) for number in range(2)]
    assert all(each["devices"] == 4 and each["local"] == 2 for each in told)
    assert told[0] == told[1]
    assert told[0]["refused"].startswith(f"{tmp_path / 'two'} holds checkpoints of another run\n")
    alone = losses(tmp_path / "one")
    # Sums between processes may be taken in another order.
    assert all(abs(a - b) <= 1e-6 for a, b in zip(told[0]["losses"], alone, strict=True)), (told[0]["losses"], alone)
    other = trainer_of(tmp_path / "two")
    other.restore()
    assert abs(float(other.step(*batch(4))["loss"]) - alone[4]) <= 1e-6
    assert len(alone) == 6 and alone[0] > alone[3] > 0
