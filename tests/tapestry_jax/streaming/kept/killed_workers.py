"""Ranges of turns in processes that are killed by SIGKILL, as the workers of a cluster are: what one had, another runs.

What a worker does is the library's (`run_range`), and so is what the driver makes of it; who hands the ranges out is
not Dask here, whose workers take a second each to begin. One of Dask's is killed in `cluster/test_workers.py`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tapestry_jax.streaming.cluster.handed import Handed
from tapestry_jax.streaming.cluster.task import run_range
from tests.tapestry_jax.streaming.kept.forks import PATIENCE, forked

_AT_ONCE = 2
_SOON = 0.06  # seconds within which a worker is killed


class Workers:
    """Runs ranges, in place of `driver.in_any_order`.

    Args:
      chance: decides who is killed, and when.
      share: of the workers that are killed.
      killed: told of each.
    """

    def __init__(self, chance: random.Random, share: float, killed: Callable[[], None]) -> None:
        self._chance, self._share, self._killed = chance, share, killed

    def __call__(
        self, client: Any, handed: Handed, todo: Sequence[tuple[int, int]], number: int | None = None
    ) -> Iterator[int]:
        """Have ranges run; the number of turns of each, as it is committed."""
        waiting, running = deque(todo), dict[int, tuple[tuple[int, int], float]]()
        begun = time.monotonic()
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                cut = waiting.popleft()
                process = forked(lambda cut=cut: _work(handed, *cut, number))
                dies = self._chance.random() < self._share
                running[process] = cut, time.monotonic() + self._chance.random() * _SOON if dies else float("inf")
            for process, (cut, until) in [*running.items()]:
                if time.monotonic() > until:
                    os.kill(process, signal.SIGKILL)
                found, status = os.waitpid(process, 0 if time.monotonic() > until else os.WNOHANG)
                if not found:
                    continue
                del running[process]
                code = os.waitstatus_to_exitcode(status)
                if code == -signal.SIGKILL:
                    self._killed()
                    waiting.append(cut)
                else:
                    assert code == 0, f"a worker ended with {code}"
                    yield cut[1] - cut[0]
            assert time.monotonic() - begun < PATIENCE, "workers hang"
            time.sleep(0.002)


def _work(handed: Handed, begin: int, stop: int, number: int | None) -> None:
    # What a fork has open it holds the lock of as well, and a worker may outlive its driver.
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if handle.readlink().name == "lock":
                os.close(int(handle.name))
    run_range(handed, begin, stop, number)
