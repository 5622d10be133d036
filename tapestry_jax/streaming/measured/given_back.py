"""What the allocator keeps of what was freed, given back to the system where it would break a limit.

Each thread of a process takes blocks from a place of its own, and what is freed stays there for its next one: of
results that one thread makes and another lets go, a few are kept in each of as many places as there are threads.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Give back whole pages that nobody uses; nothing where the allocator knows no such thing."""
    trim = trimming()
    if trim is not None:
        trim(0)


@cache
def trimming() -> Any:
    """What gives pages back; None where the allocator knows no such thing."""
    try:
        # Of glibc: others give back by themselves.
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
