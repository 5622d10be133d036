"""Gradients where several elements attain an extremum, and beside infinities and NaN: the same under every plan.

Thorough: all are compiled, there are more of them, and all folds in stripes at once; that a maximum in stripes shares
its gradient is asked for by itself as well. In every run one program of many and the first NaN are compiled; the
others run in NumPy, on all devices.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
import tapestry_jax as tp
from combinators.graphs.evaluate import evaluate
from tests.simulated.evaluate import run_traced, simulated
from tests.simulated.sampled import in_numpy
from tests.thoroughly import thoroughly

agg, monoids = tp.aggregators, tp.monoids
COUNT = 7
# Of each column several elements are largest, and several least.
X = np.array(
    [[1, 2, 0], [5, 2, 1], [0, 0, 1], [5, 2, 0], [0, 1, 1], [5, 0, 1], [3, 0, 0]],
    np.float32,
)
WEIGHTS = np.array([1.0, 2.0, 1.0], np.float32)
LABELS = np.array([0, 1, 0, 1, 0, 1, 2], np.int32)
RUNS = np.array([4, 4, 4, 4, 5, 5, 5], np.int32)
largest = tp.Reduce(lambda x, w: jnp.max(x * w, axis=0), "x c, c -> c", monoids.Max)
least = tp.Reduce(lambda x, w: jnp.transpose(jnp.min(x * w, axis=0)), "x c, c -> c", monoids.Min)
lifted_one_by_one = tp.Aggregator(lambda x: (2 * x, x), monoids.Max & monoids.Sum, lambda state: state)


def folds(x, weights, labels, runs):
    del runs
    return (
        largest(x, weights),
        tp.fold(agg.Max().by_key(None, 2), "x c, x -> c")(x, labels),
        tp.fold(agg.MinMax().masked(), "x c, x -> c")(x, labels),
        tp.fold(lifted_one_by_one, "x c -> c")(x),
        *(more_folds(x, weights, labels) if thoroughly() else ()),
    )


def more_folds(x, weights, labels):
    return (
        least(x, weights),
        tp.fold((agg.Max() & agg.Moments()) & agg.MinMax(), "x c -> c")(x),
        tp.fold(agg.Max(), "x c -> ")(x),
        tp.fold(agg.Max().contramap(lambda x, w: x * w), "x c, c -> c")(x, weights),
        tp.fold((agg.Max() & agg.Min()).by_key(None, 2), "x c, x -> c")(x, labels),
    )


def choices(x, weights, labels, runs):
    del weights
    coordinates = tp.index("x", like=x)
    return (
        tp.fold(agg.ArgMax() & agg.ArgMin(), "x c, x -> c")(x, coordinates),
        tp.fold(agg.TopK(2), "x c, x -> c")(x, coordinates),
        tp.fold(agg.ArgMax().by_segment(None, 3), "x c, x, x -> c")(x, coordinates, labels),
        *(more_choices(x, runs) if thoroughly() else ()),
        # Apart from the other scans: one loop runs in one direction.
        tp.Scan(monoids.Min, "x c -> x c", "x", reverse=True, exclusive=True)(x),
    )


def more_choices(x, runs):
    return (
        tp.fold(agg.First() & agg.Last(), "x c -> c")(x),
        tp.fold((agg.Max() & agg.Min()).by_run(), "x c, x -> c")(x, runs),
    )


def prefixes(x, weights, labels, runs):
    del weights
    return (
        tp.Scan(monoids.Max, "x c -> x c", "x", final=True)(x),
        tp.window(agg.Max(), 3, "x c -> x c", "x")(x),
        *(more_prefixes(x, labels, runs) if thoroughly() else ()),
    )


def more_prefixes(x, labels, runs):
    return (
        tp.scan(agg.Max().by_run(), "x c, x -> x c", "x")(x, runs),
        tp.scan(agg.MinMax(), "x c -> x c", "x")(x),
        tp.scan(agg.Max().segmented(), "x c, x -> x c", "x")(x, labels),
    )


TYPES = (
    tp.TensorType({"x": COUNT, "c": 3}),
    tp.TensorType({"c": 3}),
    *(tp.TensorType({"x": COUNT}, jnp.int32),) * 2,
)
PROGRAMS = {program.__name__: program for program in (folds, choices, prefixes)}
# Over a mesh and turn by turn at once, in a loop of another dimension; and out of order.
NESTED = {"x": ("m", tp.chunks(2)), "c": tp.chunks(3)}
STRIPED = {"x": (tp.striped("m"), tp.chunks(2))}
PAIRS = [
    pytest.param("folds", NESTED, id="folds"),
    pytest.param("folds", STRIPED, id="folds in stripes", marks=pytest.mark.thorough),
    pytest.param("choices", NESTED, id="choices"),
    pytest.param("prefixes", {"x": ("m", tp.chunks(2))}, id="prefixes"),
]


@functools.cache
def graph_of(name):
    return tp.trace(PROGRAMS[name], *TYPES)


def gradients(run, x):
    """By `x`, of all results times numbers that differ; what is not finite is left out."""

    def loss(x):
        leaves = [leaf for leaf in jax.tree.leaves(run(x, WEIGHTS, LABELS, RUNS)) if leaf.dtype == jnp.float32]
        parts = [
            jnp.where(jnp.isfinite(leaf), leaf, 0) * (1 + jnp.arange(leaf.size)).reshape(leaf.shape) for leaf in leaves
        ]
        return sum((number + 1) * jnp.sum(part) for number, part in enumerate(parts))

    return jax.grad(loss)(x)


UNUSUAL = X.copy()
UNUSUAL[1, 0] = UNUSUAL[5, 0] = np.nan
UNUSUAL[:, 1] = -np.inf
UNUSUAL[3, 2] = np.inf


@pytest.mark.parametrize(("name", "entries"), PAIRS)
def test_gradients_at_ties_do_not_depend_on_the_plan(name, entries):
    compiled = tp.plan(graph_of(name), tp.mesh(m=2), entries).compile().jitted

    def run(x):
        return gradients(compiled, x)

    # Of the three programs one is compiled: what JAX derives of the others runs in NumPy, on both devices.
    planned = jax.jit(run) if thoroughly() or name == "prefixes" else _simulated(run)
    np.testing.assert_allclose(planned(X), _unplanned(name)(X), rtol=1e-5, atol=1e-5)
    if name == "choices":
        np.testing.assert_array_equal(np.isnan(planned(UNUSUAL)), np.isnan(_unplanned(name)(UNUSUAL)))


@functools.cache
def _unplanned(name):
    def run(x):
        return gradients(lambda *args: evaluate(graph_of(name), args), x)

    return jax.jit(run) if thoroughly() else _simulated(run)


def _simulated(run, like=X):
    """It in NumPy, traced once."""
    closed, out = jax.make_jaxpr(run, return_shape=True)(like)
    return lambda x: run_traced(closed, jax.tree.structure(out), (x,))


def _gradient(run):
    return in_numpy(jax.grad(run))


def test_folds_share_and_prefixes_choose_the_first():
    x = jnp.asarray(X[:, 0])
    for arrow in (tp.Reduce(lambda x: jnp.max(x, axis=0), "x -> ", monoids.Max), tp.fold(agg.Max(), "x -> ")):
        for entries in ({"x": "m"}, {"x": (tp.striped("m"), tp.chunks(2))}):
            run = tp.plan(tp.trace(arrow, x), tp.mesh(m=2), entries).compile()
            np.testing.assert_allclose(_gradient(run)(x), [0, 1 / 3, 0, 1 / 3, 0, 1 / 3, 0], rtol=1e-6)
    total = _gradient(lambda x: tp.scan(agg.Max())(x)[-1])(x)
    assert total.tolist() == [0, 1, 0, 0, 0, 0, 0]
    index = _gradient(lambda x: agg.ArgMax().run(x, jnp.arange(COUNT))["value"])(x)
    assert index.tolist() == [0, 1, 0, 0, 0, 0, 0]


def test_rings_share_by_what_every_device_has_met():
    keys = np.array([5, 1, 5, 5, 0, 2, 5, 1], np.float32)
    best = tp.Reduce(lambda q, k: jnp.max(q[:, None] * k, axis=1), "q, k -> q", monoids.Max)
    queries = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    run = tp.plan(tp.trace(best, queries, keys), tp.mesh(m=4), {"q": "m", "k": tp.ring("m")}).compile()
    shares = in_numpy(jax.jacobian(run, argnums=1))(queries, keys)
    np.testing.assert_allclose(shares, queries[:, None] * (keys == 5) / 4, rtol=1e-6)


def test_kernel_that_sorts_gives_a_subgradient():
    x = X[:, 0]
    sorting = tp.Reduce(lambda x: jnp.sort(x)[-1], "x -> ", monoids.Max)
    for entries in ({"x": "m"}, {"x": tp.chunks(3)}):
        share = _gradient(tp.plan(tp.trace(sorting, x), tp.mesh(m=2), entries).compile())(x)
        assert share.sum() == 1 and np.all(share >= 0) and np.all(share[x < 5] == 0)


def test_infinite_minimum_of_a_key_is_shared_by_its_own_elements():
    # The last turn of the last device meets no element of the second key: what it holds is the identity.
    x = np.array([np.inf, np.inf, 1.0, np.inf, np.inf, np.inf, 2.0], np.float32)
    graph = tp.trace(tp.fold(agg.Min().by_key(None, 4), "x, x -> "), x, LABELS)
    run = tp.plan(graph, tp.mesh(m=2), {"x": ("m", tp.chunks(2))}).compile().jitted
    shares = _simulated(jax.grad(lambda x: jnp.sum(run(x, LABELS))), x)(x)
    np.testing.assert_allclose(shares, [0, 1 / 3, 1, 1 / 3, 0, 1 / 3, 1], rtol=1e-6)


def test_infinity_beside_a_logsumexp_has_no_gradient_anywhere():
    x = np.array([1.0, np.inf, 2.0, -np.inf, 0.0, 3.0, 1.0], np.float32)
    arrow = tp.fold(agg.LogSumExp(), "x -> ")
    for entries in ({"x": "m"}, {"x": tp.chunks(3)}):
        run = tp.plan(tp.trace(arrow, x), tp.mesh(m=2), entries).compile()
        assert _gradient(run)(x).tolist() == _gradient(arrow)(x).tolist() == [0.0] * COUNT


def test_infinity_in_one_run_does_not_reach_the_gradient_of_the_next():
    x = np.array([np.inf, 0.0, 2.0, 3.0, 1.0, 5.0, 1.0], np.float32)
    runs = np.array([0, 1, 1, 1, 2, 2, 2], np.int32)
    arrow = tp.scan(agg.Prod().by_run(), "x, x -> x", "x")
    for run in (arrow, tp.plan(tp.trace(arrow, x, runs), tp.mesh(m=3), {"x": "m"}).compile()):
        slope = _gradient(lambda x, run=run: jnp.sum(run(x, runs)[1:]))(x)
        assert slope.tolist() == [0.0, 1.0 + 2.0 + 6.0, 0.0, 0.0, 1.0 + 5.0 + 5.0, 1.0 + 1.0, 5.0]


@pytest.mark.parametrize(
    "aggregator",
    [agg.ArgMin, pytest.param(agg.ArgMax, marks=pytest.mark.thorough)],
    ids=lambda each: each.__name__,
)
def test_the_first_nan_wins_and_has_the_gradient_under_every_plan(aggregator):
    x, at = np.array([1.0, np.nan, 2.0, np.nan, 0.0, 3.0, 1.0], np.float32), np.arange(COUNT)
    arrow = tp.fold(aggregator(), "x, x -> ")
    graph = tp.trace(arrow, x, at)
    plans = [tp.plan(graph, tp.mesh(m=m), {"x": entry}) for m, entry in ((3, "m"), (2, ("m", tp.chunks(2))))]
    for run in (arrow, *(plan.compile() for plan in plans)):
        chosen = lambda x, run=run: ((best := run(x, at))["value"], best["index"])  # noqa: E731
        slope, index = jax.jit(jax.grad(chosen, has_aux=True))(x)
        assert int(index) == 1
        assert slope.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_law_of_gradients_holds_at_ties():
    x = jnp.asarray(X[:, 0])
    arrow = tp.Reduce(lambda x: jnp.max(x, axis=0), "x -> ", monoids.Max)
    plan = tp.plan(tp.trace(arrow, x), tp.mesh(m=2), {"x": ("m", tp.chunks(2))})
    assert "plan.gradients" in laws.assert_equivalent(plan, args=(x,)).held


BEHIND_MAXIMA = {
    "initial": (lambda x: jnp.max(x, axis=0, initial=-jnp.inf), monoids.Max),
    "least": (lambda x: jnp.min(x, axis=0, initial=jnp.inf), monoids.Min),
    "floor of the same size": (lambda x: jnp.maximum(2.0, jnp.max(x, axis=0)), monoids.Max),
    "floors": (lambda x: jnp.maximum(jnp.clip(jnp.max(x, axis=0), min=0.5), 0.75), monoids.Max),
    "where": (lambda x: jnp.max(x, axis=0, where=x < 4, initial=-jnp.inf), monoids.Max),
    "wider": (lambda x: jnp.max(x.astype(jnp.bfloat16), axis=0).astype(jnp.float32), monoids.Max),
}


# What is initial stands behind `where` as well.
THOROUGH_BEHIND_MAXIMA = ["initial", "least", "floors"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH_BEHIND_MAXIMA)) for name in BEHIND_MAXIMA],
)
def test_kernels_with_constants_beside_an_extremum_share_as_plain_ones(name):
    kernel, monoid = BEHIND_MAXIMA[name]
    arrow = tp.Reduce(kernel, "x c -> c", monoid)
    graph, weights = tp.trace(arrow, tp.TensorType({"x": 5, "c": 3})), jnp.arange(1.0, 4.0)
    # One of the three devices has a single cell more than the next, and blocks attain unlike numbers of times.
    x = np.float32([[2, 5, 0], [2, 2, 1], [2, 5, 1], [0, 4, 1], [2, 5, 0]])
    for entries in ({"c": "m", "x": tp.ring("m")}, {"x": (tp.striped("m"), tp.chunks(size=1))}):
        run = tp.plan(graph, tp.mesh(m=3), entries).compile().jitted
        share, expected = (simulated(jax.grad(lambda x, f=f: f(x) @ weights), x) for f in (run, arrow))
        np.testing.assert_allclose(share, expected, rtol=1e-6)


WRITTEN = {"softplus": jax.nn.softplus, "logistic": lambda x: 2 * jax.nn.log_sigmoid(x), "relu6": jax.nn.relu6}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("entry", ["d", tp.chunks(2), ("d", tp.chunks(2))])
def test_kernels_with_a_derivative_that_is_written_before_an_extremum(name, entry):
    before = WRITTEN[name]
    # Of `softplus(x)` JAX takes the larger of a block and a constant, in a call that has its own derivative.
    x = jnp.asarray(np.random.default_rng(0).integers(-2, 3, (6, 4)), jnp.float32)
    fold = tp.Reduce(lambda x: before(x).max(0), "n c -> c", tp.monoids.Max)
    run = tp.plan(tp.trace(fold, x), tp.mesh(d=2), {"n": entry}).compile()
    np.testing.assert_allclose(run(x), before(x).max(0), rtol=1e-6)
    slopes = jax.grad(lambda x: (run(x) * jnp.arange(4)).sum())(x)
    np.testing.assert_allclose(slopes, jax.grad(lambda x: (before(x).max(0) * jnp.arange(4)).sum())(x), rtol=1e-5)
