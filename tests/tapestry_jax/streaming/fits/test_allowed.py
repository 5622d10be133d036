"""The limit that a process is under, as the system's files say it, and memory that is more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.fits.allowed import Allowed, allowed, check_allowed


def _system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMORY = {"proc/meminfo": "MemTotal:       1000 kB\nMemFree:        10 kB\n"}


@pytest.mark.parametrize(
    ("files", "expected", "where"),
    [
        ({}, 1_024_000, "proc/meminfo"),
        # Version 2: a limit of the group itself, or of one above it.
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "5000\n"},
            5000,
            "sys/fs/cgroup/a/b/memory.max",
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "7000\n",
            },
            7000,
            "sys/fs/cgroup/a/memory.max",
        ),
        # In a container the group has another name outside.
        ({"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/memory.max": "900\n"}, 900, "sys/fs/cgroup/memory.max"),
        # Version 1, beside version 2 without limits.
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/a\n3:cpuset:/\n0::/\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "6000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            6000,
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
        ),
        ({"proc/self/cgroup": "nonsense\n0:\n", "sys/fs/cgroup/memory.max": "many\n"}, 1_024_000, "proc/meminfo"),
    ],
)
def test_the_least_limit_is_found(tmp_path: Path, files: dict[str, str], expected: int, where: str) -> None:
    assert allowed(_system(tmp_path, MEMORY | files)) == Allowed(expected, str(tmp_path / where))


def test_where_nothing_is_said_no_limit_is_known(tmp_path: Path) -> None:
    assert allowed(tmp_path) is None
    check_allowed(10**15, None)


def test_memory_beyond_the_limit_is_refused() -> None:
    check_allowed(5000, Allowed(5000, "memory.max"))
    check_allowed(None, Allowed(5000, "memory.max"))
    with pytest.raises(
        tp.PlanError, match=r"(?s)memory=   4\.9 KiB.*the limit 4\.9 KiB, in memory\.max.*Give less than"
    ):
        check_allowed(5001, Allowed(5000, "memory.max"))


def test_a_stream_is_held_against_this_machine() -> None:
    total = tp.fold(tp.aggregators.Sum(), "row c -> c")
    with pytest.raises(tp.PlanError, match="the stream may not have so much memory as it is given"):
        tp.stream(total, {"row": tp.chunks(size=2)}, np.ones((4, 2), np.float32), memory="900TB")
