"""Aggregators of recurrences and of attention, against SciPy, NumPy and the operation of attention."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.special

import laws
import tapestry_jax as tp
from combinators import aggregators
from combinators.errors import GraphError
from tests.simulated.sampled import in_numpy
from tests.thoroughly import thoroughly

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_recurrence_is_a_filter_of_first_order():
    b = normal(50, 3)
    a = np.full_like(b, 0.9)
    want = scipy.signal.lfilter([1], [1, -0.9], b.astype(np.float64), axis=0)
    run = in_numpy(aggregators.Recurrence().run)
    np.testing.assert_allclose(run(a, b), want[-1], rtol=1e-5)
    got = in_numpy(tp.scan(aggregators.Recurrence(), "t h, t h -> t h", over="t"))(a, b)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    # A decay of 0 forgets what came before; nothing is divided by it.
    a[20] = 0
    np.testing.assert_allclose(run(a, b), run(a[20:], b[20:]), rtol=1e-5)
    gradient = in_numpy(jax.grad(lambda b: jnp.sum(run(a, b))))(b)
    assert np.all(gradient[:20] == 0) and np.all(np.asarray(gradient[20:]) > 0)


def test_dense_recurrence_multiplies_matrices():
    a, b = 0.5 * normal(12, 3, 3), normal(12, 3)
    dense = aggregators.Recurrence(dense=True)
    got = in_numpy(tp.fold(dense, "t [i] [j], t [i] -> "))(a, b)
    np.testing.assert_allclose(got, dense.reference(a, b), rtol=1e-4, atol=1e-5)
    diagonal = np.stack([np.diag(np.diagonal(matrix)) for matrix in a])
    plain = in_numpy(aggregators.Recurrence().run)(np.stack([np.diagonal(matrix) for matrix in a]), b)
    np.testing.assert_allclose(in_numpy(dense.run)(diagonal, b), plain, rtol=1e-5, atol=1e-6)
    types = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 2), (2,))]
    asked = "aggregator" if thoroughly() else ["aggregator.chunks", "aggregator.semantic"]
    assert "aggregator.semantic" in laws.assert_lawful(dense, types, laws=asked, examples=5).held
    with pytest.raises(GraphError, match=r"(?s)no square matrix.*\(3, 3\) and \(2,\).*dense=True"):
        dense.run(a, b[:, :2])


def test_softmax_mean_is_attention_of_one_query():
    scores, values = 4 * normal(40), normal(40, 6)
    scores[7], values[7] = -np.inf, np.nan
    found = in_numpy(tp.fold(aggregators.SoftmaxMean(), "key, key [channel] -> "))(scores, values)
    wide, kept = scores.astype(np.float64), np.delete(values, 7, axis=0)
    np.testing.assert_allclose(found["mean"], np.delete(scipy.special.softmax(wide), 7) @ kept, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["logsumexp"], scipy.special.logsumexp(wide), rtol=1e-6)
    nothing = in_numpy(aggregators.SoftmaxMean().run)(np.full(3, -np.inf, np.float32), values[:3])
    assert np.all(nothing["mean"] == 0) and nothing["logsumexp"] == -np.inf


def test_softmax_mean_has_the_gradients_of_softmax():
    scores, values = normal(9), normal(9, 2)
    means = lambda s, v: aggregators.SoftmaxMean().run(s, v)["mean"], lambda s, v: jax.nn.softmax(s) @ v
    ours, want = (
        in_numpy(jax.grad(lambda s, v, mean=mean: jnp.sum(mean(s, v) ** 2), (0, 1)))(scores, values) for mean in means
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, want)


@pytest.mark.parametrize("entry", [("data", "model"), ("data", tp.chunks(3))], ids=["mesh", "chunks"])
def test_both_run_over_a_mesh_and_in_chunks(mesh2x4, entry):
    scores, values = normal(50), normal(50, 4)
    kinds = (tp.TensorType({"key": 50}, jnp.float32), tp.TensorType({"key": 50, "channel": 4}, jnp.float32))

    def program(scores, values):
        pooled = tp.fold(aggregators.SoftmaxMean(), "key, key [channel] -> ")(scores, values)
        return pooled, tp.fold(aggregators.Recurrence(), "key, key channel -> channel")(scores, values)

    graph = tp.trace(program, *kinds)
    got = tp.plan(graph, mesh2x4, {"key": entry}).compile()(scores, values)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, graph(scores, values))
