"""Inputs of `Aggregator.run`: too few, too many, of other lengths or of other cells are told before or by `lift`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import Aggregator, aggregators, monoids
from combinators.aggregation.inputs import count_inputs, most_inputs
from combinators.errors import GraphError

X = np.arange(4, dtype=np.float32)
INDEX = np.arange(4)
BOTH = aggregators.Moments() & aggregators.TopK(2)


@pytest.mark.parametrize(
    ("aggregator", "inputs", "problem"),
    [
        (aggregators.ArgMax(), (X,), r"ArgMax.run: .*expected +2 inputs\n.*got +1 input, of shapes \(4,\)"),
        (aggregators.Moments(), (X, X, X), r"Moments.run: .*expected +1 to 2 inputs\n.*got +3 inputs"),
        (aggregators.LogSumExp(), (X, X, X), r"expected +1 to 2 inputs\n"),
        (aggregators.HyperLogLog(), (INDEX, INDEX), r"expected +1 input\n"),
        (aggregators.Mean(), (), r"expected +1 to 2 inputs\n.*got +0 inputs"),
        (BOTH, (X, INDEX, X), r"Moments & TopK.run: .*expected +2 inputs\n"),
        (aggregators.Sum() & aggregators.Max(), (X, X), r"expected +1 input\n"),
        (aggregators.Mean().masked(), (X, X, X, X), r"expected +2 to 3 inputs\n"),
        (aggregators.Sum().segmented(), (X,), r"expected +2 inputs\n"),
        (aggregators.Sum().contramap(lambda x: -x), (X, X), r"expected +1 input\n"),
        (aggregators.Mean(), (X, X[:3]), r"one leading axis.*shapes \(4,\), \(3,\)"),
        (aggregators.Mean(), (3.0,), r"one leading axis.*shapes \(\)"),
        (aggregators.Mean(), ("word",), r"one leading axis"),
        (aggregators.Covariance(), (X, X), r"Covariance.run: the elements cannot be lifted.*shapes \(4,\), \(4,\)"),
    ],
)
def test_inputs_that_do_not_fit(aggregator, inputs, problem):
    with pytest.raises(GraphError, match=f"(?s){problem}.*Pass "):
        aggregator.run(*inputs)


def test_inputs_that_fit_are_run():
    assert float(aggregators.Mean().masked().run(X, X, X > 1)) == pytest.approx(np.average(X[2:], weights=X[2:]))
    moments, top = BOTH.run(X, INDEX)
    assert float(moments["mean"]) == X.mean()
    assert np.asarray(top["index"]).tolist() == [3, 2]
    run = jax.jit(aggregators.Mean().run)
    assert float(run(X, jnp.ones(4))) == X.mean()


def test_errors_of_what_fits_are_left_alone():
    def many(xs):
        raise ValueError("out of order")

    broken = Aggregator(lambda x: x, monoids.Sum, lambda s: s, lift_many=many)
    with pytest.raises(ValueError, match="out of order"):
        broken.run(X)


def test_inputs_are_counted():
    assert [count_inputs(f) for f in (BOTH.lift, aggregators.Mean().masked().lift, max)] == [2, 2, None]
    assert [most_inputs(f) for f in (BOTH.lift, aggregators.Mean().masked().lift, max)] == [2, 3, None]
