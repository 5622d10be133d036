"""Aggregators that judge predicted classes: confusion matrix, accuracy, precision, recall and F1."""

from __future__ import annotations

from typing import Any, Literal, cast, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.elementwise import present_state
from combinators.aggregators.grid import bin_totals
from combinators.aggregators.mean import present_mean
from combinators.aggregators.moments import LiftOne
from combinators.aggregators.totals import total
from combinators.aggregators.weights import float_weights, over, reference_weights, weigh
from combinators.arguments import is_whole
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.pieces import InPieces

Average = Literal["macro", "micro", "weighted"]
Score = Literal["precision", "recall", "f1"]


def ConfusionMatrix(classes: int) -> Aggregator:
    """Count how often each class is taken for each.

    Args:
      classes: how many there are; labels are 0 to `classes - 1`.

    Returns:
      An aggregator of integer labels, integer predictions and optionally weights to a matrix `(classes, classes)`: a
      row for each label, a column for each prediction, as in scikit-learn. Elements whose label or prediction is no
      class are left out, as are those of weight 0 or below. Counts are integers, or floats where weights are; 0 for
      nothing.

    Raises:
      GraphError: when there is no class, or labels are floats.
    """
    many = ConfusionMany(_classes("ConfusionMatrix", classes))
    return Aggregator(
        LiftOne(many),
        monoids.Sum,
        present_state,
        lift_many=InPieces(many, monoids.Sum),
        reference=ReferenceConfusion(classes),
        name="ConfusionMatrix",
    )


def Accuracy() -> Aggregator:
    """Find the share of predictions that equal their labels.

    Returns:
      An aggregator of labels, predictions and optionally weights to a float; NaN for nothing.
    """
    return Aggregator(
        LiftOne(accuracy_many),
        monoids.Mean,
        present_mean,
        lift_many=accuracy_many,
        reference=reference_accuracy,
        name="Accuracy",
    )


def Precision(classes: int, average: Average | None = None) -> Aggregator:
    """Find what share of the predictions of a class is right: `hits / predicted`.

    Args:
      classes: how many there are; labels are 0 to `classes - 1`.
      average: None for one value a class; `macro`, their mean; `micro`, that of all classes together; `weighted`, their
        mean by how often the class is a label.

    Returns:
      An aggregator of inputs as in `ConfusionMatrix` to floats `(classes,)`, or to one. A quotient of nothing is 0, as
      in scikit-learn.

    Raises:
      GraphError: when there is no class, or no such average.
    """
    return _scores("Precision", "precision", classes, average)


def Recall(classes: int, average: Average | None = None) -> Aggregator:
    """Find what share of the labels of a class is found: `hits / labelled`.

    Args:
      classes: how many there are; labels are 0 to `classes - 1`.
      average: as in `Precision`.

    Returns:
      An aggregator as of `Precision`.

    Raises:
      GraphError: when there is no class, or no such average.
    """
    return _scores("Recall", "recall", classes, average)


def F1(classes: int, average: Average | None = None) -> Aggregator:
    """Find the harmonic mean of precision and recall: `2 hits / (predicted + labelled)`.

    Args:
      classes: how many there are; labels are 0 to `classes - 1`.
      average: as in `Precision`.

    Returns:
      An aggregator as of `Precision`.

    Raises:
      GraphError: when there is no class, or no such average.
    """
    return _scores("F1", "f1", classes, average)


def _scores(name: str, score: Score, classes: int, average: Average | None) -> Aggregator:
    if not isinstance(cast("Any", average), str | None) or average not in (None, "macro", "micro", "weighted"):
        raise GraphError(
            message(
                f"{name}: unknown average.", "expected  None, 'macro', 'micro' or 'weighted'", f"got       {average!r}"
            )
        )
    many = HitsMany(_classes(name, classes))
    present = PresentScore(score, average)
    reference = ReferenceScore(score, average, classes)
    return Aggregator(
        LiftOne(many), monoids.Sum, present, lift_many=InPieces(many, monoids.Sum), reference=reference, name=name
    )


@final
@dataclass(frozen=True)
class ConfusionMany:
    """Count pairs of label and prediction along the leading axis.

    Attributes:
      classes: how many there are.
    """

    classes: int

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Return totals `(classes, classes, ...)`."""
        labels, predictions = _classes_of(labels, self.classes), _classes_of(predictions, self.classes)
        are_classes = (labels >= 0) & (predictions >= 0)
        places = jnp.where(are_classes, labels * self.classes + predictions, -1)
        amounts = None if weights is None else weigh(weights)[0]
        totals = bin_totals(places, self.classes**2, amounts)
        return totals.reshape(self.classes, self.classes, *totals.shape[1:])


@final
@dataclass(frozen=True)
class HitsMany:
    """Count hits, predictions and labels of each class along the leading axis.

    Attributes:
      classes: how many there are.
    """

    classes: int

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Return three totals `(classes, ...)`."""
        labels, predictions = _classes_of(labels, self.classes), _classes_of(predictions, self.classes)
        are_classes = (labels >= 0) & (predictions >= 0)
        amounts = None if weights is None else float_weights(weights)
        chosen = (are_classes & (labels == predictions), are_classes, are_classes)
        return tuple(
            bin_totals(jnp.where(kept, which, -1), self.classes, amounts)
            for kept, which in zip(chosen, (labels, predictions, labels), strict=True)
        )


@final
@dataclass(frozen=True)
class PresentScore:
    """Present hits, predictions and labels as a score.

    Attributes:
      score: which.
      average: how the scores of the classes become one; None to keep them.
    """

    score: Score
    average: Average | None

    def __call__(self, state: Any) -> Any:
        """Return floats `(classes,)`, or one."""
        hits, predicted, labelled = (jnp.asarray(part, jnp.result_type(part, jnp.float32)) for part in state)
        if self.average == "micro":
            hits, predicted, labelled = (jnp.sum(part, axis=0) for part in (hits, predicted, labelled))
        scores = {
            "precision": lambda: _quotient(hits, predicted),
            "recall": lambda: _quotient(hits, labelled),
            "f1": lambda: _quotient(2 * hits, predicted + labelled),
        }[self.score]()
        if self.average == "macro":
            return jnp.mean(scores, axis=0)
        if self.average == "weighted":
            return _quotient(jnp.sum(scores * labelled, axis=0), jnp.sum(labelled, axis=0))
        return scores


def accuracy_many(labels: Any, predictions: Any, weights: Any = None) -> Any:
    """Total and count hits along the leading axis."""
    hits = jnp.asarray(labels) == jnp.asarray(predictions)
    if weights is None:
        return jnp.sum(hits, axis=0), jnp.asarray(hits.shape[0], int)
    (weights,) = weigh(weights)
    return total(jnp.where(hits, over(weights, hits), 0)), total(weights)


def reference_accuracy(labels: Any, predictions: Any, weights: Any = None) -> Any:
    """Find the share of hits in NumPy."""
    weights = reference_weights(weights, len(labels))
    if not weights.sum():
        return np.full(labels.shape[1:], np.nan)
    return np.average(labels == predictions, axis=0, weights=weights)


@final
@dataclass(frozen=True)
class ReferenceConfusion:
    """Count pairs of label and prediction in NumPy.

    Attributes:
      classes: how many there are.
    """

    classes: int

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Return totals `(classes, classes, ...)`."""
        weights, known = reference_weights(weights, len(labels)), np.arange(self.classes)
        is_label = (labels[..., None] == known).astype(weights.dtype)
        return np.einsum("n...i,n...j,n->ij...", is_label, predictions[..., None] == known, weights)


@final
@dataclass(frozen=True)
class ReferenceScore:
    """Find a score in NumPy, from the confusion matrix.

    Attributes:
      score: which.
      average: how the scores of the classes become one.
      classes: how many there are.
    """

    score: Score
    average: Average | None
    classes: int

    def __call__(self, *inputs: Any) -> Any:
        """Return floats `(classes,)`, or one."""
        matrix = ReferenceConfusion(self.classes)(*inputs).astype(np.float64)
        hits = np.moveaxis(np.diagonal(matrix), -1, 0)
        predicted, labelled = matrix.sum(0), matrix.sum(1)
        if self.average == "micro":
            hits, predicted, labelled = hits.sum(0), predicted.sum(0), labelled.sum(0)
        above, below = {
            "precision": (hits, predicted),
            "recall": (hits, labelled),
            "f1": (2 * hits, predicted + labelled),
        }[self.score]
        scores = np.divide(above, below, out=np.zeros_like(above), where=below != 0)
        if self.average == "weighted":
            total = labelled.sum(0)
            return np.divide((scores * labelled).sum(0), total, out=np.zeros_like(total), where=total != 0)
        return scores.mean(0) if self.average == "macro" else scores


def _classes(where: str, classes: int) -> int:
    if not is_whole(classes) or classes < 1:
        raise GraphError(
            message(f"{where}: there are no classes.", "expected  a positive integer", f"got       {classes!r}")
        )
    return int(classes)


def _classes_of(labels: Any, classes: int) -> Any:
    """Give labels as int32, -1 where they are no class."""
    labels = jnp.asarray(labels)
    if jnp.issubdtype(labels.dtype, jnp.inexact):
        raise GraphError(
            message(
                "Classification: labels and predictions are numbers of classes.",
                "expected  integers or booleans",
                f"got       {labels.dtype}",
                remedy="Turn scores into classes first, such as by jnp.argmax.",
            )
        )
    # Compared as they come: the low bits of a wider number may be those of a class.
    labels = labels if labels.dtype.itemsize >= 4 else labels.astype(jnp.int32)
    return jnp.where((labels >= 0) & (labels < classes), labels.astype(jnp.int32), -1)


def _quotient(above: Any, below: Any) -> Any:
    return jnp.where(below == 0, 0, above / jnp.where(below == 0, 1, below))
