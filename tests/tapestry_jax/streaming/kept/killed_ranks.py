"""Ranks of `tapestry launch` that are killed by SIGKILL while they run jobs: the supervisor starts all of them again.

The supervisor and its guardian are the library's own, with their process group, pipes and signals; a rank is forked
instead of started, since a Python that imports JAX takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tapestry_jax.launching import group
from tapestry_jax.launching.launch import Launch
from tapestry_jax.launching.supervise import supervise
from tests.tapestry_jax.streaming.kept.forks import forked

_FORKED = "forked"
_SOON = 0.2  # seconds within which a rank is killed


def supervised(
    work: Callable[[int], None], ranks: int, kills: int, chance: random.Random, killed: Any, notes: Any
) -> int:
    """Supervise ranks, one of which is killed in each of the first attempts; the status of all.

    Args:
      work: what a rank does, from its number.
      ranks: how many.
      kills: how often one is killed.
      chance: decides which, and when.
      killed: told of each kill.
      notes: told of each guardian.
    """
    guardians: list[Any] = []
    attempts: list[tuple[int, float]] = []

    def started(words: Any, **how: Any) -> Any:
        if words[0] != _FORKED:
            guardians.append(subprocess.Popen(words, **how))
            notes.add(f"guardian-{guardians[-1].pid}")
            # Each attempt has one guardian.
            dies = len(guardians) <= kills
            attempts.append((chance.randrange(ranks), chance.random() * _SOON if dies else float("inf")))
            return guardians[-1]
        number = int(how["env"]["JAX_PROCESS_ID"])
        victim, until = attempts[-1]
        rank = _Rank(lambda: work(number), guardians, **how)
        if number == victim:
            rank.until, rank.killed = time.monotonic() + until, killed
        return rank

    group.subprocess = SimpleNamespace(Popen=started, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    return supervise(Launch((_FORKED,), ranks, None, kills, None, 1.0, dict(os.environ)))


class _Rank:
    """A forked process, as `subprocess.Popen` is one."""

    def __init__(self, work: Callable[[], None], guardians: list[Any], *, env: Any, process_group: int, **_: Any):
        pipes = [os.pipe(), os.pipe()]

        def inside() -> None:
            for guardian in guardians:
                # Its end says that the supervisor has ended: nobody else may hold it.
                for pipe in (guardian.stdin, guardian.stdout):
                    if not pipe.closed:
                        os.close(pipe.fileno())
            for (_, into), number in zip(pipes, (1, 2), strict=True):
                os.dup2(into, number)
            os.environ.clear()
            os.environ.update(env)
            work()

        self.pid, self.returncode, self.until, self.killed = (
            forked(inside, group=process_group),
            None,
            float("inf"),
            None,
        )
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, process_group)  # whoever of the two comes first
        for _read, into in pipes:
            os.close(into)
        self.stdout, self.stderr = (os.fdopen(read, "rb", buffering=0) for read, _ in pipes)

    def poll(self) -> int | None:
        """The status, once it has ended; here it is killed, too, since nobody else is sure who has its number."""
        if self.returncode is None and time.monotonic() > self.until:
            self.until = float("inf")
            self.kill()
            self._note(os.waitpid(self.pid, 0)[1])
            if self.returncode == -signal.SIGKILL and self.killed is not None:
                self.killed()
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._note(status)
        return self.returncode

    def _note(self, status: int) -> None:
        self.returncode = os.waitstatus_to_exitcode(status)

    def wait(self) -> int:
        """The status, when it has ended."""
        if self.returncode is None:
            self._note(os.waitpid(self.pid, 0)[1])
        return self.returncode or 0

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
