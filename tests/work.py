"""Counting work instead of time: how many calls something makes, and how that grows with its size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls(run: Callable[[], Any]) -> int:
    """How many calls of Python and C functions `run` makes, those of libraries included."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def growth(make: Callable[[int], Any], run: Callable[[Any], Any], size: int = 40, factor: int = 4) -> float:
    """How many times the work grows beyond what the size does: near 1 where it is linear, `factor` where quadratic.

    Args:
      make: from a size what `run` takes; its work does not count.
      run: what is measured. It runs once before, so that what caches hold for every size is not counted.
      size: the smaller size.
      factor: the larger size is so many times the smaller one.
    """
    run(make(size // 2))
    small, large = make(size), make(factor * size)
    first = calls(lambda: run(small))
    return calls(lambda: run(large)) / first / factor
