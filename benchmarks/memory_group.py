"""A control group of this process that limits the memory it takes from now on (Linux, version 1, as root).

What the process has already stays charged to the group that it was in. Where the limit is reached the system takes back
pages of files first; where that is not enough, it ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_TOP = Path("/sys/fs/cgroup/memory")


@contextmanager
def limited(count: int) -> Generator[None]:
    """Be in a group of so many bytes, below the one that this process is in.

    Args:
      count: bytes, from now on.

    Raises:
      OSError: where no such group can be made.
    """
    around = _own()
    for left in around.glob("streams-*"):
        # Of processes that were ended; one with processes in it cannot be removed.
        with suppress(OSError):
            left.rmdir()
    group = around / f"streams-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(count))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (around / "cgroup.procs").write_text(str(os.getpid()))
        # Pages of files stay charged until somebody asks for them back.
        (group / "memory.force_empty").write_text("0")
        group.rmdir()


def _own() -> Path:
    """The folder of the memory group of this process."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _TOP / path.lstrip("/")
    raise OSError("this process is in no memory group of version 1")
