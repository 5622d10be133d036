"""Processes that are forked from one that has planned and compiled its jobs, and what they note of themselves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.children import child

PATIENCE = 60.0
"""Seconds after which a process is taken for one that hangs."""


def forked(work: Callable[[], None], *, group: int = 0) -> int:
    """A process that does some work and ends with 0, or with 1 and a trace on its error output.

    Args:
      work: what it does.
      group: the process group that it joins; 0 for one of its own.
    """

    def begun() -> None:
        os.setpgid(0, group)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # a supervisor hears them
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()

    return child(begun)


def ended(process: int, until: float) -> int | None:
    """The status of a process that ends before some moment."""
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if (left := until - time.monotonic()) <= 0:
            return None
        time.sleep(min(0.004, left))


def kill(process: int) -> None:
    """End a child, and see its end: no other process has its number until then."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def slowed(pause: float) -> None:
    """From here on every sync and every rename of a file takes longer, so that kills fall between them."""
    sync, rename = os.fsync, os.replace

    def slow(call: Callable[..., None]) -> Callable[..., None]:
        def slowly(*given: object) -> None:
            time.sleep(pause)
            call(*given)
            time.sleep(pause)

        return slowly

    os.fsync, os.replace = slow(sync), slow(rename)


class Notes:
    """What processes note in a file, a line each, whoever is killed when.

    Args:
      path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, what: str) -> None:
        """Note something, and when."""
        with self._path.open("a") as file:
            file.write(f"{what} {time.monotonic()}\n")

    def read(self, since: int = 0) -> list[tuple[str, float]]:
        """What was noted, behind the first so many notes."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [(line.split()[0], float(line.split()[1])) for line in lines[since:] if len(line.split()) == 2]
