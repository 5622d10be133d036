"""Where a table was measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import flax
import jax


def machine() -> str:
    """Cores, processor, load, and versions in one line."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return (
        f"{len(_cores())} cores of {_processor()}, load {load}, {platform.system()}; "
        f"Python {platform.python_version()}, jax {jax.__version__}, flax {flax.__version__}, {jax.default_backend()}"
    )


def _cores() -> range | set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
