"""The shipped aggregators: how they are made, and what they are fed in tests that all of them take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from laws.shipped_pieces.aggregators import CLASSES

INDEXED = ("ArgMax", "ArgMin", "Decayed", "Reservoir", "TopK")
PAIRED = ("Recurrence", "SoftmaxMean")
JUDGED = ("AUC", "CalibrationError")
# Their elements are vectors, not numbers.
VECTORS = ("Covariance", "Correlation", "LinearRegression")


def inputs(name, n, kind):
    """Inputs of `n` elements for an aggregator, of `int`, `half` or `float`."""
    rng = np.random.default_rng(n + 10 * len(kind))
    if kind == "int":
        x = rng.integers(-4, 5, (n, 3)).astype(np.int32)
    elif kind == "half":
        x = rng.integers(-8, 9, (n, 3)).astype(np.float16) / 8
    else:
        x = rng.standard_normal((n, 3)).astype(np.float32)
    if name in PAIRED:
        return x, x[:, ::-1] + np.ones(3, x.dtype)
    if name in INDEXED:
        return x, np.arange(n, dtype=np.int32) + 7
    if name in CLASSES:
        # Three classes, and labels that are none.
        return rng.integers(-1, 4, (n, 3)).astype(np.int32), rng.integers(0, 4, (n, 3)).astype(np.int32)
    if name in JUDGED:
        return rng.integers(0, 2, (n, 3)).astype(np.int32), x
    return (x, x @ np.array([1, -2, 0], x.dtype) + rng.integers(0, 2, n)) if name == "LinearRegression" else (x,)


# The pieces that every run looks at; the others are `thorough`, since their laws say the same of them.
CORE = ("Sum", "Max", "Mean", "Moments", "LogSumExp", "ArgMax", "AttentionState", "AffineRecurrence")


def each(names: Sequence[str], but: Sequence[str] = ()) -> list[Any]:
    """Names as parameters, all but the core ones, and these but for some, marked `thorough`."""
    return [
        name if name in CORE and name not in but else pytest.param(name, marks=pytest.mark.thorough) for name in names
    ]
