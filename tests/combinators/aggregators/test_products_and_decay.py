"""Compensated sums, decayed values and matrix products over semirings, against exact sums, NumPy and SciPy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.csgraph
import scipy.special

from combinators import aggregators, fold, monoids, scan
from combinators.errors import GraphError
from tests.simulated.sampled import in_numpy

U = 2.0**-24


def _cancelling(rng, n):
    half = 1e6 * rng.standard_normal(n // 2)
    return np.concatenate([half, rng.random(n // 2) - half[::-1]])


CANCELLING = {
    "offset": lambda rng, n: 1e8 + 1e-8 * rng.standard_normal(n),
    "mixed": lambda rng, n: rng.standard_normal(n) * 10.0 ** rng.integers(-15, 15, n),
    "cancelling": _cancelling,
}


@pytest.mark.parametrize("data", CANCELLING)
def test_compensated_sum_is_as_if_with_twice_the_digits(data):
    n = 4096
    x = CANCELLING[data](np.random.default_rng(0), n).astype(np.float32)
    exact, size = math.fsum(x.astype(float)), math.fsum(np.abs(x.astype(float)))
    total, error = in_numpy(aggregators.CompensatedSum().lift_many)(x)
    bound = U * abs(exact) + (n * U) ** 2 * size
    assert abs(float(total) + float(error) - exact) <= bound  # the pair, before it is rounded once more
    assert abs(float(in_numpy(aggregators.CompensatedSum().run)(x)) - exact) <= bound + U * abs(exact)


def test_plain_sum_does_not_keep_that_bound():
    x = CANCELLING["cancelling"](np.random.default_rng(0), 4096).astype(np.float32)
    exact = math.fsum(x.astype(float))
    assert abs(float(jnp.sum(x)) - exact) > 1000 * U * abs(exact)


def test_two_sum_is_exact_under_jit_and_in_half_precision():
    rng = np.random.default_rng(1)
    for dtype, digits in ((jnp.float32, 8), (jnp.bfloat16, 3), (jnp.float16, 2)):
        a, b = (jnp.asarray(rng.standard_normal(500) * 10.0 ** rng.integers(-digits, digits, 500), dtype) for _ in "ab")
        total, error = in_numpy(monoids.two_sum)(a, b)
        np.testing.assert_array_equal(total, a + b)
        exact = np.asarray(a, np.float64) + np.asarray(b, np.float64)
        np.testing.assert_array_equal(np.asarray(total, np.float64) + np.asarray(error, np.float64), exact)


def test_compensated_sum_of_infinities_is_that_of_numpy():
    for column in ([1.0, np.inf], [np.inf, -np.inf, 2.0], [np.nan, 1.0], [3e38, 3e38]):
        with np.errstate(all="ignore"):
            want = np.sum(np.asarray(column, np.float32))
        np.testing.assert_array_equal(aggregators.CompensatedSum().run(np.asarray(column, np.float32)), want)


def test_compensated_sum_has_the_gradient_of_a_sum():
    x = jnp.asarray([1.0, 1e8, -3.0])
    np.testing.assert_array_equal(in_numpy(jax.grad(lambda x: aggregators.CompensatedSum().run(x)))(x), np.ones(3))


def test_decayed_mean_scanned_is_a_weighted_average():
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal(9).astype(np.float32), np.cumsum(rng.random(9)).astype(np.float32)
    got = in_numpy(scan(aggregators.Decayed(0.7), "t, t -> t"))(x, t)
    for i in range(9):
        weights = 0.5 ** ((t[i] - t[: i + 1]) / 0.7)
        np.testing.assert_allclose(got["mean"][i], np.average(x[: i + 1], weights=weights), rtol=1e-5)
        np.testing.assert_allclose(got["total"][i], weights @ x[: i + 1], rtol=1e-4, atol=1e-6)


def test_decayed_values_have_gradients_by_time():
    decayed = aggregators.Decayed(2.0)
    by_time = in_numpy(jax.grad(lambda t: decayed.run(jnp.asarray([3.0, 5.0]), jnp.stack([t, 4.0]))["total"]))(1.0)
    np.testing.assert_allclose(by_time, 3 * 2 ** (-1.5) * np.log(2) / 2, rtol=1e-5)


def test_shortest_paths_are_those_of_scipy():
    rng = np.random.default_rng(3)
    weights = rng.random((6, 6)).astype(np.float32)
    weights[rng.random((6, 6)) < 0.5] = np.inf
    np.fill_diagonal(weights, 0)
    want = scipy.sparse.csgraph.floyd_warshall(np.where(np.isinf(weights), 0, weights))
    got = in_numpy(aggregators.MatrixProduct("min_plus").run)(np.stack([weights] * 5))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    best = in_numpy(aggregators.MatrixProduct("max_plus").run)(np.stack([-weights] * 5))
    np.testing.assert_allclose(best, -want, rtol=1e-6)


def test_log_products_are_logarithms_of_products():
    rng = np.random.default_rng(4)
    chain = rng.standard_normal((7, 3, 3)).astype(np.float32)
    want = np.log(np.linalg.multi_dot(list(np.exp(chain.astype(np.float64)))))
    product = aggregators.MatrixProduct("log")
    np.testing.assert_allclose(in_numpy(product.run)(chain), want, rtol=1e-5)
    # Far out of the range of exp; and one row without any way.
    far = chain + 500
    far[:, 0, :] = -np.inf
    got = in_numpy(product.run)(far)
    assert np.all(np.isneginf(got[0]))
    np.testing.assert_allclose(got, product.reference(far), rtol=1e-5)


def test_log_product_has_the_gradient_of_its_paths():
    a, b = (jnp.asarray(np.float32(np.random.default_rng(seed).standard_normal((2, 2)))) for seed in (5, 6))
    a = a.at[0].set(-jnp.inf)
    gradient = in_numpy(jax.grad(lambda a: monoids.LogProduct.merge(a, b)[1].sum()))(a)
    want = sum(scipy.special.softmax(np.asarray(a[1] + b[:, j])) for j in range(2))
    np.testing.assert_allclose(gradient[1], want, rtol=1e-5)
    np.testing.assert_array_equal(gradient[0], 0)


def test_prefixes_of_log_products_are_the_forward_algorithm():
    rng = np.random.default_rng(7)
    steps = np.log(rng.dirichlet(np.ones(3), (6, 3))).astype(np.float32)
    got = in_numpy(scan(aggregators.MatrixProduct("log"), "t [i] [j] -> t"))(steps)
    want = np.eye(3)
    for t in range(6):
        want = want @ np.exp(steps[t].astype(np.float64))
        np.testing.assert_allclose(np.exp(got[t]), want, rtol=1e-4)


@pytest.mark.parametrize("semiring", ["real", "min_plus", "max_plus", "log"])
def test_products_of_pieces_keep_their_order(semiring):
    product = aggregators.MatrixProduct(semiring)
    chain = np.random.default_rng(8).standard_normal((5, 2, 2)).astype(np.float32)
    pieces = [product.lift_many(chain[:0]), product.lift_many(chain[:2]), product.lift_many(chain[2:])]
    whole = product.monoid.fold(pieces)
    np.testing.assert_allclose(whole, product.reference(chain), rtol=1e-4, atol=1e-5)
    assert not np.allclose(whole, product.reference(chain[::-1]), rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: aggregators.Decayed(0), r"(?s)half-life is no positive number.*got       0"),
        (lambda: aggregators.MatrixProduct("max_times"), r"(?s)no such semiring.*real, min_plus, max_plus, log"),
        (lambda: aggregators.MatrixProduct().run(np.ones((4, 2, 3))), r"(?s)no square matrices.*\(4, 2, 3\)"),
        (lambda: aggregators.CompensatedSum().run(np.ones(3, np.complex64)), "the input is complex"),
    ],
)
def test_wrong_elements_and_arguments_are_an_error(make, problem):
    with pytest.raises(GraphError, match=problem):
        make()


def test_fold_multiplies_matrices_whose_axes_are_whole():
    chain = np.random.default_rng(9).standard_normal((4, 2, 3, 2)).astype(np.float32)
    got = fold(aggregators.MatrixProduct(), "step [i] col [j] -> col")(chain)
    want = [np.linalg.multi_dot(list(chain[:, :, col])) for col in range(3)]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
