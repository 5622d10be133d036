"""Programs that round to less than float32: what each entry, and each leaf as a whole, may differ by.

There the conditioned bound of many steps allows everything: 800 operations in bfloat16 some 13 times the number. So
what the steps round is measured, and nothing else is allowed that float32 would not explain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

MORE = (8, 16, 32, 64)
"""Samples of noise: for all entries, and for those that differ by more than the first ones say.

Nearly all entries of a program in bfloat16 differ. Eight samples are too few for some of a hundred thousand, and a step
that flips in one sample of twenty, as a saturated activation does, is found by more of them alone.
"""

Array = np.ndarray[Any, Any]
Spread = Callable[[int], "Array | None"]
"""Samples -> how far every entry moves; None where it cannot be asked."""

Along = Callable[[int], "Sequence[tuple[Array, float]] | None"]
"""Samples -> each leaf in float64, and the largest product of a deviation with it."""


def beyond_noise(gaps: Array, places: Array, spread: Spread, times: float) -> Array | None:
    """Those of some entries that differ by more than their steps round, the worst first.

    Args:
      gaps: by how much they differ.
      places: where they stand among all.
      spread: asked for as few samples as will do.
      times: what is allowed, in terms of it.

    Returns:
      Their numbers in `gaps`; None where what the steps round cannot be asked.
    """
    left, own = np.arange(len(gaps)), np.zeros(0)
    for samples in MORE:
        found = spread(samples)
        if found is None:
            return None
        own = times * found[places[left]]
        beyond = gaps[left] > own
        left, own = left[beyond], own[beyond]
        if not len(left):
            return left
    return left[np.argsort(gaps[left] / np.maximum(own, np.finfo(np.float32).tiny))[::-1]]


def off_as_a_whole(difference: Array, number: int, along: Along, times: float, conditioned: float) -> Array | None:
    """Whether the entries of a leaf are off in one direction, by less than each of them may be.

    What thousands of entries round cancels where they are added up: a gradient that is a tenth too small is seen, where
    each of its entries is known to a third.

    Args:
      difference: of the sides, entry by entry.
      number: of the leaf.
      along: asked for as few samples as will do.
      times: what is allowed, in terms of it.
      conditioned: what is allowed beside, relative.

    Returns:
      Lengths along the leaf: the difference, what was allowed, and how much of this for rounding; None where it is
      allowed, or nothing is known.
    """
    lengths: Array | None = None
    for samples in MORE:
        known = along(samples)
        if known is None:
            return None
        leaf, spread = known[number]
        length = float(np.linalg.norm(leaf))
        gap, own = abs(float(difference @ leaf)), times * spread
        allowed = conditioned * length**2 + own
        # NaN as well: what is not finite was compared one by one.
        if not gap > allowed:
            return None
        lengths = np.array([gap, allowed, own]) / length
    return lengths
