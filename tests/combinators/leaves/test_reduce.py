"""Reduces: folds of every kind against NumPy and jax.lax, and the kernels that cannot fold."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import combinators as tp
from combinators import KernelError, SignatureError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6)).astype(np.float32)
MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def valid_conv(x: Any, f: Any) -> Any:
    return jax.lax.conv_general_dilated(x, f, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def test_matmul_is_that_of_numpy() -> None:
    np.testing.assert_allclose(MATMUL(X, X.T), X @ X.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("monoid", "kernel", "expected"),
    [
        (tp.monoids.Max, lambda x: x.max(0), np.max),
        (tp.monoids.Min, lambda x: x.min(0), np.min),
        (tp.monoids.Prod, lambda x: x.prod(0), np.prod),
        (tp.monoids.Sum, lambda x: x.sum(0), np.sum),
    ],
)
def test_elementwise_monoids_fold_as_numpy_does(monoid: tp.Monoid, kernel: Any, expected: Any) -> None:
    np.testing.assert_allclose(tp.Reduce(kernel, "k n -> n", monoid)(X), expected(X, 0), rtol=1e-5)


def test_a_strided_convolution_is_that_of_lax() -> None:
    conv = tp.Reduce(valid_conv, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)
    image, filters = (RNG.normal(size=s).astype(np.float32) for s in ((2, 8, 9, 3), (3, 3, 3, 4)))
    np.testing.assert_allclose(conv(image, filters), valid_conv(image, filters), rtol=1e-4, atol=1e-5)


def rows_and_ones(x: Any) -> Any:
    top = jnp.max(x, 0)
    return top, jnp.sum(jnp.exp(x - top), 0)


def test_a_state_of_two_leaves_is_presented() -> None:
    fold = tp.Reduce(rows_and_ones, "k n -> n", tp.monoids.LogSumExp, present=tp.monoids.logsumexp_value)
    np.testing.assert_allclose(fold(X), scipy.special.logsumexp(X, 0), rtol=1e-5)


def test_a_carrier_names_the_axes_of_each_leaf() -> None:
    def kernel(scores: Any, values: Any) -> Any:
        top = jnp.max(scores, -1)
        weights = jnp.exp(scores - top[:, None])
        return top, weights.sum(-1), weights @ values

    attend = tp.Reduce(
        kernel, "q k, k e -> q e", tp.monoids.AttentionState, carrier="q, q, q e", present=tp.monoids.attention_output
    )
    values = RNG.normal(size=(6, 2)).astype(np.float32)
    np.testing.assert_allclose(attend(X, values), scipy.special.softmax(X, 1) @ values, rtol=1e-5, atol=1e-6)


def test_a_fold_to_a_scalar_has_no_axes() -> None:
    np.testing.assert_allclose(tp.Reduce(jnp.sum, "i k ->", tp.monoids.Sum)(X), X.sum(), rtol=1e-5)


def test_the_dense_kernel_gives_the_presented_result() -> None:
    def dense(x: Any) -> Any:
        return jax.scipy.special.logsumexp(x, 0) + 100

    fold = tp.Reduce(rows_and_ones, "k n -> n", tp.monoids.LogSumExp, present=tp.monoids.logsumexp_value, dense=[dense])
    np.testing.assert_allclose(fold(X), scipy.special.logsumexp(X, 0) + 100, rtol=1e-5)


def test_gradients_and_vmap_are_those_of_jax() -> None:
    fold = tp.Reduce(rows_and_ones, "k n -> n", tp.monoids.LogSumExp, present=tp.monoids.logsumexp_value)
    reference = jax.jit(jax.jacobian(lambda x: jax.scipy.special.logsumexp(x, 0)))(X)
    np.testing.assert_allclose(jax.jit(jax.jacobian(fold))(X), reference, rtol=1e-4, atol=1e-6)
    batch = np.stack([X, -X])
    np.testing.assert_allclose(jax.jit(jax.vmap(fold))(batch), scipy.special.logsumexp(batch, 1), rtol=1e-5)


def test_worked_case_5_in_dimension_split_is_exact_on_integers() -> None:
    """X [100, 12] W [12, 32] + b: two halves of `in` summed are the whole, bit for bit."""
    x, w, b = (RNG.integers(-8, 8, size=s).astype(np.float32) for s in ((100, 12), (12, 32), (32,)))
    whole = tp.program("n i, i o, o -> n o")(lambda x, w, b: MATMUL(x, w) + b)(x, w, b)
    partials = jnp.stack([MATMUL(x[:, :6], w[:6]), MATMUL(x[:, 6:], w[6:])])
    assert partials.shape == (2, 100, 32)
    merged = tp.Reduce(lambda p: p.sum(0), "part n o -> n o", tp.monoids.Sum)(partials) + b
    np.testing.assert_array_equal(whole, merged)
    np.testing.assert_array_equal(whole, x @ w + b)


def test_worked_case_5_split_by_1_2_2_equals_the_whole() -> None:
    relu, linear = tp.Map(jax.nn.relu), tp.einsum("... i, i o -> ... o")
    network = tp.program(lambda x, v, w: relu(linear(relu(linear(x, v)), w)))
    x, v, w = (RNG.integers(-4, 4, size=s).astype(np.float32) for s in ((20, 30, 128), (128, 32), (32, 8)))
    whole = np.asarray(network(x, v, w))
    np.testing.assert_array_equal(whole, np.maximum(np.maximum(x @ v, 0) @ w, 0))
    for rows in (slice(0, 15), slice(15, 30)):
        for outs in (slice(0, 4), slice(4, 8)):
            np.testing.assert_array_equal(network(x[:, rows], v, w[:, outs]), whole[:, rows, outs])


def test_empty_folds_give_the_identity() -> None:
    np.testing.assert_array_equal(MATMUL(jnp.ones((2, 0)), jnp.ones((0, 3))), np.zeros((2, 3)))
    assert MATMUL(jnp.ones((0, 2)), jnp.ones((2, 3))).shape == (0, 3)


def test_a_kernel_that_fails_on_no_cells_is_a_typed_error() -> None:
    with pytest.raises(SignatureError, match="the kernel of `lambda` does not take its blocks\n  signature k n -> n"):
        tp.Reduce(lambda x: x.max(0), "k n -> n", tp.monoids.Max)(jnp.ones((0, 3)))


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.Reduce(jnp.matmul, "i k, k n -> i n"),
            SignatureError,
            "tp.Reduce(matmul) folds `k` and needs a monoid for it\n"
            "  signature i k, k n -> i n\n"
            "  got no monoid\n"
            "  Pass one of tp.monoids, such as tp.monoids.Sum, or your own tp.Monoid(identity, combine).",
        ),
        (
            lambda: tp.Reduce(jnp.matmul, "i k, k n -> i n", jnp.add),  # pyright: ignore[reportArgumentType]
            SignatureError,
            "tp.Reduce(matmul) folds `k` and needs a monoid for it\n"
            "  signature i k, k n -> i n\n"
            "  got ufunc: <jnp.ufunc 'add'>\n"
            "  Pass one of tp.monoids, such as tp.monoids.Sum, or your own tp.Monoid(identity, combine).",
        ),
        (
            lambda: tp.Reduce(jnp.sin, "i -> i"),
            SignatureError,
            "tp.Reduce(sin) needs a monoid\n"
            "  signature i -> i\n"
            "  got no monoid\n"
            "  Use tp.Map, since nothing stands on the left alone.",
        ),
        (
            lambda: MATMUL(X),
            SignatureError,
            "`matmul` takes 2 operands, got 1\n"
            "  signature i k, k n -> i n\n"
            "  Pass one array for each operand of the signature; the library supplies coordinates `@q`.",
        ),
        (
            lambda: MATMUL(X, X),
            SignatureError,
            "operand 1 of `matmul` does not fit its signature.\n"
            "  i k, k n -> i n\n"
            "       ^\n"
            "  its shape is (4, 6)\n"
            "  `k` is 4 here, and 6 by operand 0 of shape (4, 6)\n"
            "  Make the two sizes of `k` equal, or use two names.",
        ),
        (
            lambda: MATMUL(X, X[0]),
            SignatureError,
            "operand 1 of `matmul` does not have the axes of its signature.\n"
            "  i k, k n -> i n\n"
            "       ^^^\n"
            "  expected 2 axes, got 1\n"
            "  Pass an operand with 2 axes, or change the signature.",
        ),
        (
            lambda: tp.Reduce(rows_and_ones, "k n -> n", tp.monoids.LogSumExp, carrier="n")(X),
            SignatureError,
            "the carrier of `rows_and_ones` names 1 leaves, its kernel returns 2\n"
            "  Name the axes of every leaf of the state, in flattening order.",
        ),
        (
            lambda: tp.Reduce(jnp.sum, "k n -> n", tp.monoids.Sum, carrier="bfloat16"),
            SignatureError,
            "the carrier of `sum` does not have `n`, which results have\n"
            "  signature k n -> n\n"
            "  got 'bfloat16'\n"
            "  `bfloat16` is no dimension of the signature\n"
            "  carrier= lists the axes of every leaf of the state; a dtype is for tp.plan(accumulate=).",
        ),
        (
            lambda: tp.Reduce(lambda x: x.sum(0), "k n -> n", tp.monoids.Sum, carrier="own n")(X),
            SignatureError,
            "the carrier of `lambda` names other axes than its kernel gives a leaf of the state\n"
            "  signature k n -> n\n"
            "  carrier (own n): 2 axes, the leaf has the shape (6,)\n"
            "  Let carrier= list the axes of every leaf, or mend the kernel.",
        ),
        (
            lambda: tp.Reduce(rows_and_ones, "k n -> n", tp.monoids.LogSumExp, carrier="n, 2*n"),
            SignatureError,
            "the carrier of tp.Reduce(rows_and_ones) has the axis '2*n'\n"
            "  got 'n, 2*n'\n"
            "  Name plain dimensions, one list for each leaf of the state, separated by commas.",
        ),
        (
            lambda: tp.Reduce(lambda x: x, "k n -> n", tp.monoids.Sum)(X),
            SignatureError,
            "the kernel of `lambda` returns another shape than its signature says\n"
            "  signature k n -> n\n"
            "  state leaf (n ~0): expected (6, 6), got (4, 6)\n"
            "  Mend the kernel, or the signature's results.",
        ),
        (
            lambda: tp.Reduce(3, "k n -> n", tp.monoids.Sum),  # pyright: ignore[reportArgumentType]
            KernelError,
            "tp.Reduce(int) needs a function as its kernel.\n  got int: 3\n  Pass a function from arrays to arrays.",
        ),
    ],
)  # fmt: skip
def test_what_is_no_reduce_is_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text
