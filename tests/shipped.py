"""The shipped aggregators: how they are made, and what they are fed in tests that all of them take."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import aggregators

ARGUMENTS = {
    "Bloom": (64, 2),
    "CountMin": (16, 2),
    "HyperLogLog": (5,),
    "MinHash": (8,),
    "Reservoir": (3,),
    "TopK": (3,),
    "Histogram": (6, (-1.5, 1.5)),
    "ConfusionMatrix": (3,),
    "Precision": (3,),
    "Recall": (3, "macro"),
    "F1": (3, "weighted"),
    "AUC": (16, (-2.0, 2.0)),
    "CalibrationError": (5,),
    "LinearRegression": (0.5,),
}
INDEXED = ("ArgMax", "ArgMin", "Decayed", "Reservoir", "TopK")
CLASSES = ("ConfusionMatrix", "Accuracy", "Precision", "Recall", "F1")
JUDGED = ("AUC", "CalibrationError")
# Their elements are vectors, not numbers.
VECTORS = ("Covariance", "Correlation", "LinearRegression")
F32, I32, BOOL = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.float32, jnp.int32, jnp.bool_))
PAIR = jax.ShapeDtypeStruct((2,), jnp.float32)


def make(name):
    return getattr(aggregators, name)(*ARGUMENTS.get(name, ()))


def inputs(name, n, kind):
    """Inputs of `n` elements for an aggregator, of `int`, `half` or `float`."""
    rng = np.random.default_rng(n + 10 * len(kind))
    if kind == "int":
        x = rng.integers(-4, 5, (n, 3)).astype(np.int32)
    elif kind == "half":
        x = rng.integers(-8, 9, (n, 3)).astype(np.float16) / 8
    else:
        x = rng.standard_normal((n, 3)).astype(np.float32)
    if name in INDEXED:
        return x, np.arange(n, dtype=np.int32) + 7
    if name in CLASSES:
        # Three classes, and labels that are none.
        return rng.integers(-1, 4, (n, 3)).astype(np.int32), rng.integers(0, 4, (n, 3)).astype(np.int32)
    if name in JUDGED:
        return rng.integers(0, 2, (n, 3)).astype(np.int32), x
    return (x, x @ np.array([1, -2, 0], x.dtype) + rng.integers(0, 2, n)) if name == "LinearRegression" else (x,)


def remainder(label, prediction, weight):
    """Numbers of any size as classes, few enough to meet."""
    return jnp.mod(label, 4), jnp.mod(prediction, 4), weight


def bounded(features, target, weight):
    """Numbers of any size as features of one size, so that the equations are no worse than the data."""
    return features / (1 + jnp.abs(features)), target, weight


def chance(outcome, x, weight):
    """Numbers of any size as probabilities."""
    return outcome, jnp.abs(x) / (1 + jnp.abs(x)), weight


# What laws draw elements of; a piece for which drawn numbers mean something.
WEIGHTED = {
    **dict.fromkeys(("Count", "Mean", "Histogram"), (F32, F32)),
    **dict.fromkeys(("First", "Last"), (F32, BOOL)),
    **dict.fromkeys(CLASSES, (I32, I32, F32)),
    "AUC": (BOOL, F32, F32),
    "CalibrationError": (BOOL, F32, F32),
    **dict.fromkeys(("Covariance", "Correlation"), (PAIR, F32)),
    "LinearRegression": (PAIR, F32, F32),
}


def lawful_piece(name):
    """A shipped aggregator and the types that its laws are checked at; None for those that are known."""
    piece, types = make(name), WEIGHTED.get(name)
    if name in CLASSES:
        piece = piece.contramap(remainder)
    if name == "CalibrationError":
        piece = piece.contramap(chance)
    if name == "LinearRegression":
        piece = piece.contramap(bounded)
    return piece, types


# The pieces that every run looks at; the others are `thorough`, since their laws say the same of them.
CORE = ("Sum", "Max", "Mean", "Moments", "LogSumExp", "ArgMax", "AttentionState", "AffineRecurrence")


def each(names: list[str]) -> list[Any]:
    """Names as parameters, all but the core ones marked `thorough`."""
    return [name if name in CORE else pytest.param(name, marks=pytest.mark.thorough) for name in names]
