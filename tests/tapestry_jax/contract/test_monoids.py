"""The contract on the monoid library: statistics, ends, bins and judgements of uneven rows over eight devices."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named, normal

agg = tp.aggregators
ROWS = 13
WEIGHTS = jnp.asarray(np.float32(np.random.default_rng(3).uniform(-0.5, 2, ROWS)))
LABELS, GUESSES = (jnp.asarray(np.int32(np.random.default_rng(s).integers(0, 3, (ROWS, 2)))) for s in (4, 5))
SCORES = jnp.asarray(np.float32(np.random.default_rng(6).random((ROWS, 2))))

COLUMN, WEIGHED = "row col -> col", "row col, row -> col"
PAIR = "row col, row col, row -> col"
VECTOR = "row [col], row -> "
# Name, aggregator, signature; each group is one program of one set of operands.
STATISTICS = (("weighted", agg.Moments(), WEIGHED), ("regression", agg.LinearRegression(), VECTOR))
ENDS = (("first", agg.First(), WEIGHED), ("last", agg.Last(), COLUMN), ("both", agg.MinMax(), COLUMN))
BINS = (
    ("histogram", agg.Histogram(4, (0.0, 1.0)), COLUMN),
    ("weighted", agg.Histogram((0.0, 0.25, 0.5, 1.0)), WEIGHED),
)
JUDGED = (("auc", agg.AUC(8), PAIR), ("calibration", agg.CalibrationError(4), PAIR))
CLASSES = (
    ("confusion", agg.ConfusionMatrix(3), PAIR),
    ("accuracy", agg.Accuracy(), PAIR),
    ("f1", agg.F1(3), PAIR),
)


def _program(group):
    def program(*operands):
        return {name: tp.fold(each, signature)(*operands[: _arity(signature)]) for name, each, signature in group}

    return program


def _arity(signature):
    return signature.partition("->")[0].count(",") + 1


def _reference(group):
    def own_axes_last(value, signature):
        """A fold puts the axes of what is presented behind those of the result."""
        value = np.asarray(value)
        return np.moveaxis(value, -1, 0) if signature != VECTOR and value.ndim > 1 else value

    def reference(*operands):
        arrays = [np.asarray(operand) for operand in operands]
        found = {}
        for name, each, signature in group:
            results = each.reference(*arrays[: _arity(signature)])
            results = results if isinstance(results, dict) else {"": results}
            # A count of weights or rows is one number, of which every column has a copy.
            moved = {key: own_axes_last(value, signature) for key, value in results.items()}
            spread = {
                k: np.broadcast_to(v, (2,)) if v.ndim == 0 and signature != VECTOR else v for k, v in moved.items()
            }
            found[name] = spread.get("", spread)
        return found

    return reference


@pytest.mark.parametrize(
    ("group", "operands"),
    [
        # Moments go over the mesh in test_folds.py, where a map takes them back.
        pytest.param(STATISTICS, (normal(ROWS, 2) + 3, WEIGHTS), marks=pytest.mark.thorough),
        (ENDS, (normal(ROWS, 2), WEIGHTS > 0.5)),
        # Counts of what is judged, of bins and of classes are merged by sums.
        pytest.param(JUDGED, (LABELS, SCORES, WEIGHTS), marks=pytest.mark.thorough),
        pytest.param(BINS, (SCORES, WEIGHTS), marks=pytest.mark.thorough),
        pytest.param(CLASSES, (LABELS, GUESSES, WEIGHTS), marks=pytest.mark.thorough),
    ],
    ids=["statistics", "ends", "judged", "bins", "classes"],
)
def test_contract_monoid_library(mesh8, group, operands):
    axes = ["row col" if operand.ndim == 2 else "row" for operand in operands]
    graph = tp.trace(_program(group), *named(", ".join(axes), *operands))
    plan = tp.plan(graph, mesh8, {"row": "data"})
    plan.verify()
    assert_contract(plan)
    assert_same(plan, operands, rtol=1e-3, atol=1e-4, reference=_reference(group))
