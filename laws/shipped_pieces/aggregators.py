"""The shipped aggregators as laws take them: how each is made, and elements that mean something to it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators import aggregators
from combinators.aggregation.aggregator import Aggregator
from combinators.leaves.fold import fold
from laws.draws.cells import BOOL, F32, I32, Struct
from laws.given import Given, given
from laws.pieces import Asked
from laws.subjects.aggregator import AggregatorSubject

ARGUMENTS: dict[str, tuple[Any, ...]] = {
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
"""What factories are called with that need arguments: sizes so small that elements meet."""

ROWS, COLUMNS = 5, 3
CLASSES = ("ConfusionMatrix", "Accuracy", "Precision", "Recall", "F1")
PAIR = Struct((2,), jnp.float32)

WEIGHTED: dict[str, tuple[Struct, ...]] = {
    **dict.fromkeys(("Count", "Mean", "Histogram"), (F32, F32)),
    **dict.fromkeys(("First", "Last"), (F32, BOOL)),
    **dict.fromkeys(CLASSES, (I32, I32, F32)),
    **dict.fromkeys(("AUC", "CalibrationError"), (BOOL, F32, F32)),
    **dict.fromkeys(("Covariance", "Correlation"), (PAIR, F32)),
    "LinearRegression": (PAIR, F32, F32),
    "SoftmaxMean": (F32, PAIR),
    "Recurrence": (F32, F32),
}
"""Types of one element, the optional weights and masks among them; the others are known by their monoids."""


def names() -> tuple[str, ...]:
    """The names of the shipped aggregators."""
    return tuple(name for name in vars(aggregators) if name[0].isupper())


def make(name: str) -> Aggregator:
    """The shipped aggregator of a name."""
    return getattr(aggregators, name)(*ARGUMENTS.get(name, ()))


def piece(name: str) -> Aggregator:
    """The aggregator, with drawn numbers brought to where they mean something."""
    function = _FITTING.get(name)
    return make(name) if function is None else make(name).contramap(function)


def elements(name: str) -> tuple[Struct, ...]:
    """The types of one element that its laws are checked at."""
    asked = Asked(piece(name), WEIGHTED.get(name))
    return next(s.elements for s in asked.subjects() if isinstance(s, AggregatorSubject))


def folded(name: str) -> Given:
    """The aggregator as an operation: rows are folded, columns kept, and the axes of one element are whole."""
    kinds = elements(name)
    read = ", ".join(" ".join(["row col", *(f"[axis{i}]" for i in range(len(kind.shape)))]) for kind in kinds)
    types = [Struct((ROWS, COLUMNS, *kind.shape), kind.dtype) for kind in kinds]
    return given(fold(piece(name), f"{read} -> col"), types=types)


def aggregator_pieces() -> dict[str, Given]:
    """Every shipped aggregator, on its own and as a fold."""
    alone = {f"aggregators.{name}": given(piece(name), types=WEIGHTED.get(name), laws="aggregator") for name in names()}
    return alone | {f"fold({name})": folded(name) for name in names()}


def remainder(label: Any, prediction: Any, weight: Any) -> Any:
    """Numbers of any size as classes, few enough to meet."""
    return jnp.mod(label, 4), jnp.mod(prediction, 4), weight


def bounded(features: Any, target: Any, weight: Any) -> Any:
    """Features and weights of at most 1 beside the penalty, so that the normal equations are no worse than the data."""
    return _within_one(features), target, _within_one(weight)


def chance(outcome: Any, x: Any, weight: Any) -> Any:
    """Numbers of any size as probabilities."""
    return outcome, jnp.abs(_within_one(x)), weight


def _within_one(x: Any) -> Any:
    """What is larger than 1, inverted: what it rounds is no more than a rounding of its argument would make."""
    is_large = jnp.abs(x) > 1
    return jnp.where(is_large, 1 / jnp.where(is_large, x, 1), x)


def no_zero(x: Any) -> Any:
    """Numbers of any size away from 0, so that no log-sum-exp of five of them lies near 0, where it has few digits."""
    return jnp.where(x < 0, x - 8, x + 1)


def scored(score: Any, value: Any) -> Any:
    """Scores of which the same holds."""
    return no_zero(score), value


_FITTING: dict[str, Any] = {
    **dict.fromkeys(CLASSES, remainder),
    "CalibrationError": chance,
    "LinearRegression": bounded,
    "LogSumExp": no_zero,
    "SoftmaxMean": scored,
}
