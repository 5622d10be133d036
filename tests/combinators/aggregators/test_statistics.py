"""Moments, covariance and regression against NumPy and SciPy: higher orders, weights, long axes, degenerate data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from combinators import aggregators, fold
from combinators.aggregators.sums import of_long_runs, of_short_runs, origin_near
from combinators.errors import GraphError
from combinators.merging.together import DEPTH, LANES, in_levels, reduce_together, separately
from tests.simulated.sampled import in_numpy

RNG = np.random.default_rng(0)


def run(aggregator, *xs):
    """One compilation is less work than one for each operation."""
    return in_numpy(aggregator.run)(*xs)


def _gradient(run, x):
    return in_numpy(jax.grad(run))(jnp.asarray(x))


def test_skewness_and_kurtosis_are_those_of_scipy():
    x = RNG.gamma(2.0, size=(500, 3)).astype(np.float32)
    result = run(aggregators.Moments(), x)
    np.testing.assert_allclose(result["skewness"], scipy.stats.skew(x.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(result["kurtosis"], scipy.stats.kurtosis(x.astype(np.float64)), rtol=1e-5)


def test_moments_of_pieces_have_the_kurtosis_of_all():
    x = RNG.gamma(2.0, size=400).astype(np.float32)
    aggregator = aggregators.Moments()
    pieces = lambda x: [aggregator.lift_many(piece) for piece in jnp.split(x, [7, 7, 100, 390])]  # noqa: E731
    result = in_numpy(lambda x: aggregator.present(aggregator.monoid.fold(pieces(x))))(x)
    np.testing.assert_allclose(result["skewness"], scipy.stats.skew(x.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(result["kurtosis"], scipy.stats.kurtosis(x.astype(np.float64)), rtol=1e-5)


def test_gradient_of_kurtosis_is_that_of_its_formula():
    x = RNG.standard_normal(9).astype(np.float32)
    formula = lambda x: jnp.mean((x - x.mean()) ** 4) / jnp.var(x) ** 2  # noqa: E731
    ours = _gradient(lambda x: run(aggregators.Moments(), x)["kurtosis"], x)
    np.testing.assert_allclose(ours, _gradient(formula, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("data", [np.full(5, 0.1, np.float32), np.float32([1e8, 1e8 + 8, 1e8])])
def test_shape_of_data_without_spread_is_unknown(data):
    result = run(aggregators.Moments(), data)
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="catastrophic cancellation"):
        assert np.isnan(scipy.stats.skew(data))
    assert np.isnan(result["skewness"]) and np.isnan(result["kurtosis"])
    assert np.all(np.isfinite(_gradient(lambda x: run(aggregators.Moments(), x)["kurtosis"], data)))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_moments_of_an_order_carry_no_higher_sums(order):
    state = jax.eval_shape(aggregators.Moments(order).lift_many, jax.ShapeDtypeStruct((5,), jnp.float32))
    assert len(state) == order + 1
    names = {"count", "mean", "variance"} | set(("skewness", "kurtosis")[: order - 2])
    assert set(jax.eval_shape(aggregators.Moments(order).present, state)) == names


def test_weights_repeat_elements_and_masks_drop_them():
    x = RNG.standard_normal((6, 2)).astype(np.float32)
    times = np.array([2, 0, 1, 3, -1, 1])
    repeated = run(aggregators.Moments(), np.repeat(x, np.maximum(times, 0), axis=0))
    for weights in (times, times.astype(np.float32)):
        result = run(aggregators.Moments(), x, weights)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), result, repeated)
    x[[1, 4]] = np.nan
    masked = run(aggregators.Moments(), x, times > 0)
    kept = run(aggregators.Moments(), x[times > 0])
    assert masked["count"].dtype == kept["count"].dtype == jnp.int32
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), masked, kept)


def test_gradient_by_weights_is_that_of_the_formula():
    x, w = RNG.standard_normal(6).astype(np.float32), np.array([1, 0.5, 2, 0.1, 3, 1], np.float32)
    formula = lambda w: jnp.sum(w * (x - jnp.sum(w * x) / w.sum()) ** 2) / w.sum()  # noqa: E731
    ours = _gradient(lambda w: run(aggregators.Moments(), x, w)["variance"], w)
    np.testing.assert_allclose(ours, _gradient(formula, w), rtol=1e-4, atol=1e-6)


def test_order_that_does_not_exist_is_an_error():
    with pytest.raises(GraphError, match=r"(?s)unknown order.*expected  2, 3 or 4.*got       5"):
        aggregators.Moments(5)


def test_sums_of_long_axes_are_exact_on_integers_and_differentiable():
    n = 2 * DEPTH * LANES + 77
    x = jnp.asarray(np.float32(RNG.integers(-4, 5, n)))
    got = jax.jit(lambda x: reduce_together(("sum", "sum"), x, x * x))(x)
    assert [float(g) for g in got] == [float(np.sum(x)), float(np.sum(np.square(x)))]
    gradient = _gradient(lambda x: reduce_together(("sum", "sum"), x, x * x)[1], x)
    np.testing.assert_array_equal(gradient, 2 * x)


@pytest.mark.parametrize("shape", [(300_000,), (40_001, 3)])
def test_what_tpus_are_given_computes_the_same(shape):
    x = jnp.asarray(np.float32(RNG.integers(-4, 5, shape)))
    x = x.at[17].set(jnp.nan) if len(shape) > 1 else x
    kinds, arrays = ("sum", "max", "min"), (x, 2 * x, x - 1)
    for one, other in zip(separately(kinds, *arrays), in_levels(kinds, *arrays), strict=True):
        np.testing.assert_array_equal(one, other)
    (alone,) = in_levels(("max",), x)
    np.testing.assert_array_equal(separately(("max",), x)[0], alone)


@pytest.mark.parametrize("kind", ["normal", "sorted", "reversed", "burst"])
def test_long_runs_lie_near_the_mean_as_short_ones_do(kind):
    x = RNG.standard_normal((270_001, 2))
    if kind in ("sorted", "reversed"):
        x = np.sort(x, axis=0)[:: 1 if kind == "sorted" else -1]
    if kind == "burst":
        x[100_000:100_050] += 1e3
    x = x.astype(np.float32)
    for taken in (of_short_runs, of_long_runs):
        mean, low, high = taken(jnp.asarray(x))
        assert np.all(np.abs(mean - x.mean(0)) < 0.1 * x.std(0))
        assert np.all((x.min(0) <= low) & (low <= mean) & (mean <= high) & (high <= x.max(0)))


def test_origin_is_near_the_mean_of_sorted_data():
    x = np.sort(RNG.standard_normal(300_000)).astype(np.float32)
    assert abs(float(origin_near(jnp.asarray(x))) - x.mean()) < 0.1 * x.std()


@pytest.mark.parametrize("kind", ["normal", "sorted", "burst", "mixed"])
def test_moments_of_long_axes_are_as_accurate_as_numpy_float32(kind):
    x = RNG.standard_normal(300_000)
    if kind == "sorted":
        x = np.sort(x)
    if kind == "burst":
        x[:3000] += 1e4
    if kind == "mixed":
        x *= 10.0 ** RNG.uniform(-6, 6, x.shape)
    x = (x + 100).astype(np.float32)
    exact = {"mean": x.mean(dtype=np.float64), "variance": x.var(dtype=np.float64)}
    numpy = {"mean": float(x.mean()), "variance": float(x.var())}
    ours = run(aggregators.Moments(), x)
    scale = {"mean": np.abs(x).mean(dtype=np.float64), "variance": exact["variance"]}
    for name, want in exact.items():
        # NumPy can be right by chance; a rounding of the result is nobody's error.
        allowed = 4 * max(abs(numpy[name] - want), np.finfo(np.float32).eps * scale[name])
        assert abs(float(ours[name]) - want) <= allowed, (name, float(ours[name]), want, numpy[name])


def test_fold_of_vectors_has_the_covariance_of_numpy():
    x = (RNG.standard_normal((40, 3)) @ RNG.standard_normal((3, 3)) + 5).astype(np.float32)
    result = fold(aggregators.Covariance(), "row [feature] -> ")(x)
    np.testing.assert_allclose(result["covariance"], np.cov(x.T, ddof=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result["mean"], x.mean(0), rtol=1e-5)
    assert result["count"] == 40
    correlation = fold(aggregators.Correlation(), "row [feature] -> ")(x)
    np.testing.assert_allclose(correlation, np.corrcoef(x.T), rtol=1e-4, atol=1e-5)


def test_fold_of_vectors_maps_the_other_dimensions():
    x = RNG.standard_normal((7, 4, 2)).astype(np.float32)
    result = fold(aggregators.Covariance(), "row [feature] col, row -> col")(x, np.ones(7, np.float32))
    assert result["covariance"].shape == (2, 4, 4)
    np.testing.assert_allclose(result["covariance"][1], np.cov(x[:, :, 1].T, ddof=0), rtol=1e-4, atol=1e-5)


def test_covariance_of_long_axes_is_that_of_numpy():
    x = (RNG.standard_normal((20_000, 3)) + 1000).astype(np.float32)
    result = run(aggregators.Covariance(), x)
    np.testing.assert_allclose(result["covariance"], np.cov(x.T.astype(np.float64), ddof=0), rtol=1e-5, atol=1e-6)


def test_correlation_of_a_constant_is_unknown_and_that_of_others_is_not():
    x = RNG.standard_normal((9, 3)).astype(np.float32)
    x[:, 1] = 0.1
    result = np.asarray(run(aggregators.Correlation(), x))
    np.testing.assert_array_equal(np.isnan(result), [[0, 1, 0], [1, 1, 1], [0, 1, 0]])
    slopes = _gradient(lambda x: jnp.nansum(run(aggregators.Correlation(), x)), x)
    assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("ridge", [0.0, 2.5])
def test_regression_fits_as_least_squares_does(ridge):
    x = (RNG.standard_normal((50, 3)) * [1, 100, 0.01] + [0, 50, 1]).astype(np.float32)
    y = (x @ [1, -0.02, 30] + 2 + 0.1 * RNG.standard_normal(50)).astype(np.float32)
    result = fold(aggregators.LinearRegression(ridge), "row [feature], row -> ")(x, y)
    wide, mean = x.astype(np.float64), x.mean(0, dtype=np.float64)
    rows = np.concatenate([wide - mean, np.sqrt(ridge) * np.eye(3)])
    want = np.linalg.lstsq(rows, np.concatenate([y - y.mean(), np.zeros(3)]))[0]
    np.testing.assert_allclose(result["coefficients"], want, rtol=1e-3)
    np.testing.assert_allclose(result["intercept"], y.mean() - mean @ want, rtol=1e-3)
    if not ridge:
        found = scipy.stats.linregress(wide @ np.asarray(result["coefficients"], np.float64), y)
        np.testing.assert_allclose(result["r2"], found.rvalue**2, rtol=1e-4)


def test_regression_has_the_gradient_of_least_squares():
    x, y = RNG.standard_normal((12, 2)).astype(np.float32), RNG.standard_normal(12).astype(np.float32)

    def plain(y):
        return jnp.linalg.lstsq(jnp.concatenate([x, jnp.ones((12, 1))], axis=1), y)[0][1]

    ours = _gradient(lambda y: run(aggregators.LinearRegression(), x, y)["coefficients"][1], y)
    np.testing.assert_allclose(ours, _gradient(plain, y), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 8])
def test_regression_on_dependent_features_is_unknown_with_finite_gradients(rows):
    x = RNG.standard_normal((rows, 1)).astype(np.float32) * np.float32([1, -2])
    y = np.ones(rows, np.float32)
    fit = jax.jit(aggregators.LinearRegression().run)
    assert np.all(np.isnan(fit(x, y)["coefficients"]))
    slopes = _gradient(lambda x: jnp.sum(fit(x, y)["coefficients"]) + fit(x, y)["r2"], x)
    assert np.all(np.isfinite(slopes))


def test_ridge_below_zero_is_an_error():
    with pytest.raises(GraphError, match=r"(?s)`ridge` is negative.*got       -1"):
        aggregators.LinearRegression(-1)


def test_first_and_last_are_the_ends_of_what_is_valid():
    x, valid = np.arange(10, 15, dtype=np.int32), np.array([0, 1, 0, 1, 0], bool)
    assert [int(v["value"]) for v in (run(aggregators.First(), x), run(aggregators.Last(), x))] == [10, 14]
    found = [run(make(), x, valid) for make in (aggregators.First, aggregators.Last)]
    assert [(int(v["value"]), bool(v["valid"])) for v in found] == [(11, True), (13, True)]
    nothing = run(aggregators.Last(), x, valid & False)
    assert (int(nothing["value"]), bool(nothing["valid"])) == (0, False)


def test_gradient_of_the_last_valid_element_is_one_there():
    x, valid = jnp.arange(4.0), np.array([1, 1, 1, 0], bool)
    np.testing.assert_array_equal(_gradient(lambda x: run(aggregators.Last(), x, valid)["value"], x), [0, 0, 1, 0])


@pytest.mark.parametrize("size", [1, 5, 300_000])
def test_equal_numbers_have_no_spread_at_all(size):
    weights = RNG.random(size).astype(np.float32) + np.float32(0.1)
    moments, covariance = (in_numpy(each.run) for each in (aggregators.Moments(2), aggregators.Covariance()))
    for value in (0.1, -1e8, 3e-30):
        x = np.full((size, 2), value, np.float32)
        for found in (moments(x), moments(x, weights)):
            np.testing.assert_array_equal(found["mean"], x[0])
            np.testing.assert_array_equal(found["variance"], [0, 0])
        for found in (covariance(x), covariance(x, weights)):
            np.testing.assert_array_equal(found["covariance"], np.zeros((2, 2)))
