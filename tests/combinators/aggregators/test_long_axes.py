"""Aggregators of long axes, where they go other ways than short ones do, against NumPy and SciPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import laws
import tapestry_jax as tp
from combinators import aggregators, fold
from combinators.aggregators.two_stage import WIDTH, best_positions
from tests.thoroughly import some

RNG = np.random.default_rng(3)
INF = np.inf


def bytes_in_inputs(function, x):
    """How often a compiled function reads or writes as much as its input holds."""
    found = jax.jit(function).lower(x).compile().cost_analysis()
    found = found[0] if isinstance(found, list) else found
    return found["bytes accessed"] / x.nbytes


def ranked(x):
    """Positions of NumPy's order: the largest first, NaN before all, equals as they come."""
    return np.argsort(-np.unique(x, return_inverse=True)[1], kind="stable")


# Ties everywhere, within and between groups; in order, against it and mixed; zeros and NaN of both signs.
COLUMNS = {
    "ties": RNG.integers(0, 40, 9000).astype(np.float32),
    "ascending": np.arange(9000, dtype=np.float32) // 3,
    "descending": -np.arange(9000, dtype=np.float32) // 3,
    "zeros": np.where(RNG.random(9000) < 0.5, 0.0, -0.0).astype(np.float32) - (RNG.random(9000) < 0.9),
    "nan": np.where(RNG.random(9000) < 0.001, np.copysign(np.nan, RNG.standard_normal(9000)), 1.0).astype(np.float32),
    "least": np.full(9000, -INF, np.float32),
}


@pytest.mark.parametrize("count", [1, 7])
def test_best_positions_are_those_of_a_stable_sort(count):
    x = np.stack(list(COLUMNS.values()))
    assert x.shape[1] > 2 * count * WIDTH and x.shape[1] % WIDTH  # groups, and a rest
    got = jax.jit(jax.vmap(lambda x: best_positions(x, count)))(x)
    for name, column, positions in zip(COLUMNS, x, np.asarray(got), strict=True):
        np.testing.assert_array_equal(positions, ranked(column)[:count], name)


def test_best_positions_lie_in_the_rest_too():
    x = np.zeros(9000, np.int32)
    x[[8999, 8998, 17]] = 3, 9, 9
    np.testing.assert_array_equal(best_positions(jnp.asarray(x), 4), [17, 8998, 8999, 0])


def test_top_k_of_a_long_axis_orders_few_and_has_their_gradient():
    x = RNG.standard_normal(40_000).astype(np.float32)
    best = aggregators.TopK(3).lift_many.of_ascending()
    run = lambda x: best(x, jnp.arange(x.shape[0], dtype=jnp.int32))  # noqa: E731
    ordered = [e.invars[0].aval.size for e in equations(jax.make_jaxpr(run)(x).jaxpr) if e.primitive.name == "top_k"]
    assert len(ordered) == 2 and max(ordered) < x.size / 20
    gradient = jax.jit(jax.grad(lambda x: run(x)[0] @ jnp.arange(1.0, 4)))(x)
    np.testing.assert_array_equal(np.flatnonzero(gradient), np.sort(ranked(x)[:3]))
    np.testing.assert_array_equal(gradient[ranked(x)[:3]], [1, 2, 3])


def test_logsumexp_reads_its_input_as_often_as_its_definition():
    x = RNG.standard_normal(100_000).astype(np.float32)
    definition = lambda x: jnp.max(x) + jnp.log(jnp.sum(jnp.exp(x - jnp.max(x))))  # noqa: E731
    assert bytes_in_inputs(aggregators.LogSumExp().run, x) <= 1.01 * bytes_in_inputs(definition, x)


def test_logsumexp_has_the_derivatives_of_softmax():
    x = np.float32([3.0, -INF, 2.5, -1.0])
    run, along = aggregators.LogSumExp().run, np.float32([1, 2, -1, 0.5])
    p = scipy.special.softmax(x.astype(np.float64))
    value, change = jax.jit(lambda x, along: jax.jvp(run, (x,), (along,)))(x, along)
    np.testing.assert_allclose(value, scipy.special.logsumexp(x.astype(np.float64)), rtol=1e-6)
    np.testing.assert_allclose(change, p @ along, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.hessian(run))(x), np.diag(p) - np.outer(p, p), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("extreme", [INF, np.nan, -INF])
def test_gradient_of_logsumexp_beside_what_is_no_number_is_zero(extreme):
    x = np.float32([extreme, extreme, -INF]) if extreme < 0 else np.float32([extreme, 100.0, -INF])
    gradient = jax.jit(jax.grad(lambda x: aggregators.LogSumExp().lift_many(x)[1]))(x)
    np.testing.assert_array_equal(gradient, np.zeros(3))


def test_moved_logsumexp_is_as_accurate_as_numpy_float32():
    x = (60 * RNG.random(300_000) - 40).astype(np.float32)
    wide, top = x.astype(np.float64), x.max()
    exact = scipy.special.logsumexp(wide)
    numpy = top + np.log(np.sum(np.exp(x - top)))
    allowed = 4 * max(abs(numpy - exact), np.finfo(np.float32).eps / 2 * exact)
    assert abs(float(jax.jit(aggregators.LogSumExp().run)(x)) - exact) <= allowed


@pytest.mark.parametrize("size", [9000, 20_000, 40_000])
@pytest.mark.parametrize("name", ["Min", "Max"])
def test_nan_wins_on_long_axes_too(name, size):
    x = np.zeros((size, 2), np.float32)
    x[size - 5, 0] = np.nan
    extreme, place = getattr(aggregators, name)(), getattr(aggregators, f"Arg{name}")()
    at = np.arange(size, dtype=np.int32)
    found = jax.jit(lambda x, at: (extreme.run(x), extreme.masked().run(x, at > 0), place.run(x, at)))(x, at)
    np.testing.assert_array_equal([*found[:2], found[2]["value"]], [[np.nan, 0]] * 3)
    np.testing.assert_array_equal(found[2]["index"], [size - 5, 0])


def test_five_aggregators_read_their_input_together():
    x = RNG.standard_normal(300_000).astype(np.float32) + np.float32(0.5)
    five = aggregators.Moments() & aggregators.LogSumExp() & aggregators.MinMax() & aggregators.Mean()
    five = five & aggregators.Sum()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), jax.jit(five.run)(x), five.reference(x)
    )
    # As often as the dearest of them alone: for the maximum, and for the exponentials that need it.
    assert passes(five.run, x) == passes(aggregators.LogSumExp().run, x) == 2


def passes(function, x):
    """How many reductions read as many elements as the input has."""
    reads = (e for e in equations(jax.make_jaxpr(function)(x).jaxpr) if e.primitive.name.startswith("reduce"))
    return sum(e.invars[0].aval.size > 0.8 * x.size for e in reads)


def equations(jaxpr):
    """The equations of a program and of all inside it."""
    for equation in jaxpr.eqns:
        yield equation
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if inner is not None:
            yield from equations(getattr(inner, "jaxpr", inner))


def test_aggregators_together_have_the_gradients_that_they_have_alone():
    x = RNG.standard_normal(20_000).astype(np.float32)
    both = aggregators.LogSumExp() & aggregators.Max() & aggregators.TopK(2)

    def run(x):
        (total, most), best = both.run(x, jnp.arange(x.size))
        return total, most, best["value"]

    lse, most, best = jax.jit(jax.jacrev(run))(x)
    np.testing.assert_allclose(lse, scipy.special.softmax(x.astype(np.float64)), rtol=1e-4, atol=1e-9)
    np.testing.assert_array_equal(np.flatnonzero(most), [np.argmax(x)])
    np.testing.assert_array_equal(np.argmax(best, axis=1), ranked(x)[:2])


def test_plans_cut_aggregators_that_share_a_pass(mesh2x4):
    x = RNG.standard_normal((8 * 17_000 + 3, 2)).astype(np.float32)
    five = aggregators.Moments(2) & aggregators.LogSumExp() & aggregators.MinMax()
    graph = tp.trace(tp.fold(five, "row col -> col"), tp.TensorType({"row": x.shape[0], "col": 2}, jnp.float32))
    plan = tp.plan(graph, mesh2x4, {"row": ("data", "model")})
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), plan.compile()(x), five.reference(x)
    )


@pytest.mark.parametrize("signature", ["b row col -> b col", "row b col -> col b", "row b col -> b col"])
def test_columns_are_folded_where_they_lie(signature):
    x = RNG.standard_normal((40, 20, 6)).astype(np.float32)
    x = np.moveaxis(x, 0, 1) if signature.startswith("b") else x
    both = aggregators.Moments(2) & aggregators.LogSumExp() & aggregators.Max()
    got = jax.jit(fold(both, signature).__call__)(x)
    want = both.reference(np.moveaxis(x, 1, 0) if signature.startswith("b") else x)
    want = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (20, 6)), want)
    want = jax.tree.map(np.transpose, want) if signature.endswith("col b") else want
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, want)


def test_columns_are_not_transposed():
    x = RNG.standard_normal((4096, 8)).astype(np.float32)
    text = jax.jit(fold(aggregators.LogSumExp(), "row col -> col").__call__).lower(x).as_text()
    assert "stablehlo.exponential" in text and "transpose" not in text


def test_covariance_writes_deviations_once():
    # By XLA's count: 7 times its input; 9 where totals and products each have deviations of their own.
    assert bytes_in_inputs(aggregators.Covariance().run, np.ones((270_000, 4), np.float32)) < 8


def test_nan_wins_over_a_mesh(mesh8):
    x = np.float32([[1, -2, -INF], [np.nan, -1, -INF], [INF, -3, -INF]] * 3)[:8]
    graph = tp.trace(tp.fold(aggregators.MinMax(), "row col -> col"), tp.TensorType({"row": 8, "col": 3}, jnp.float32))
    found = tp.plan(graph, mesh8, {"row": "data"}).compile()(x)
    np.testing.assert_array_equal(found["max"], [np.nan, -1, -INF])
    np.testing.assert_array_equal(found["min"], [np.nan, -3, -INF])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_short_floats_are_reduced_beside_wider_sums(dtype):
    x = (RNG.integers(-8, 8, 40_000) + 0.5).astype(dtype)
    total, ends = jax.jit((aggregators.Sum() & aggregators.MinMax()).run)(x)
    assert total.dtype == ends["min"].dtype == ends["max"].dtype == dtype
    exact = x.astype(np.float64).sum().astype(dtype)
    assert [float(total), float(ends["min"]), float(ends["max"])] == [float(exact), -7.5, 7.5]


def test_weighted_logsumexp_is_that_of_scipy():
    x, w = 30 * RNG.standard_normal((500, 2)).astype(np.float32), RNG.random(500).astype(np.float32)
    w[:40], x[3] = -1, np.nan  # left out
    lse = aggregators.LogSumExp()
    want = scipy.special.logsumexp(x[40:].astype(np.float64), b=w[40:, None], axis=0)
    run = jax.jit(lse.run)
    np.testing.assert_allclose(run(x, w), want, rtol=1e-6)
    np.testing.assert_allclose(lse.reference(x, w), want, rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(lse.run(x, w))))(w)
    shares = np.exp(x[40:].astype(np.float64) - want).sum(axis=1)
    np.testing.assert_allclose(gradient, np.concatenate([np.zeros(40), shares]), rtol=1e-4, atol=1e-30)
    assert np.all(np.asarray(run(x, 0 * w)) == -INF)


@pytest.mark.thorough  # its laws without weights are checked anyway, and its values above
def test_weighted_logsumexp_is_lawful():
    number = jax.ShapeDtypeStruct((), jnp.float32)
    report = laws.assert_lawful(aggregators.LogSumExp(), [number, number], laws="aggregator", examples=some(12))
    assert "aggregator.semantic" in report.held
