"""Garbage is looked for less often while a search makes thousands of objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

SELDOM, OLDER = 50_000, 100
"""So many objects more before cycles are looked for: Python's own 700 took a sixth of a search, and found next to none.
And so often before those that have stayed are looked through again: every tenth time took a twentieth of a search that
makes a million objects. A search is no larger for it."""


@contextmanager
def seldom_collected() -> Generator[None]:
    """Look for garbage less often inside; whoever has set a larger number, or switched it off, keeps that."""
    before = gc.get_threshold()
    if 0 < before[0] < SELDOM:
        gc.set_threshold(SELDOM, max(before[1], OLDER), before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
