"""A rank that adds up what all ranks count, keeps the sum in a file, and dies at the third turn of its first run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

if __name__ == "__main__":
    jax.distributed.initialize()
    kept = Path(sys.argv[1])
    begin, total = (int(word) for word in kept.read_text().split()) if kept.exists() else (0, 0)
    print("begins at", begin, "as", jax.process_index(), "of", jax.process_count(), "with", jax.local_device_count())
    for turn in range(begin, 5):
        total += int(multihost_utils.process_allgather(np.int32(turn + jax.process_index())).sum())
        if jax.process_index() == 0:
            beside = kept.with_suffix(".partial")
            beside.write_text(f"{turn + 1} {total}")
            beside.replace(kept)
        multihost_utils.sync_global_devices(f"kept {turn}")
        if turn == 2 and jax.process_index() == 1 and os.environ["TAPESTRY_ATTEMPT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    print("total", total)
