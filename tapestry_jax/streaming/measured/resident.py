"""How much memory this process has, as the system counts it."""

from __future__ import annotations

import os
from pathlib import Path

_COUNTED = Path("/proc/self/statm")


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not say."""
    try:
        return int(_COUNTED.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
