"""Folds with aggregators against NumPy and SciPy, under every split."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import combinators as tp
from combinators import SignatureError
from tests.thoroughly import but

X = np.random.default_rng(0).normal(size=(3, 8, 5)).astype(np.float32)
MOMENTS = tp.aggregators.Moments()


@pytest.mark.parametrize(
    ("signature", "axis"),
    [
        ("a b c -> c", (0, 1)),
        ("... c -> ...", 2),
        pytest.param("a b c -> a c", 1, marks=pytest.mark.thorough),
        pytest.param("a b c -> b", (0, 2), marks=pytest.mark.thorough),
        pytest.param("a b c ->", None, marks=pytest.mark.thorough),
    ],
)
def test_moments_are_those_of_numpy(signature: str, axis: Any) -> None:
    result = tp.fold(MOMENTS, signature)(X)
    np.testing.assert_allclose(result["mean"], X.mean(axis), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result["variance"], X.var(axis), rtol=1e-4)
    assert np.all(np.asarray(result["count"]) == X.size // np.size(X.mean(axis)))


@pytest.mark.parametrize(
    ("leaf", "takes"),
    [
        (tp.fold(MOMENTS, "a b c -> c"), "1 operand"),
        (tp.fold(MOMENTS, "... c -> ..."), "1 operand"),
        (tp.fold(tp.aggregators.SoftmaxMean(), "... c, ... c -> ..."), "2 operands"),
        (tp.rearrange("a ... -> ... a"), "1 operand"),
        (tp.Map(jnp.add, "..., ... -> ..."), "2 operands"),
        (tp.Scan(tp.monoids.Sum, "a b c -> a b c", over="b"), "1 operand"),
    ],
)
def test_another_number_of_operands_is_refused_with_the_number(leaf: Any, takes: str) -> None:
    for given in {0, 1, 2, 3} - {int(takes[0])}:
        with pytest.raises(SignatureError, match=f"takes {takes}, got {given}\n  signature .*\n  Pass one array"):
            leaf(*[X] * given)


def test_results_stand_in_the_order_of_the_signature() -> None:
    result = tp.fold(tp.aggregators.Max(), "a b c -> c a")(X)
    np.testing.assert_array_equal(result, X.max(1).T)


def as_digit(x: Any) -> Any:
    return jnp.full_like(x, 10), x


def number_of(state: Any) -> Any:
    return state[1]


def test_several_fold_dimensions_run_with_the_first_outermost() -> None:
    digits = tp.Aggregator(as_digit, tp.monoids.AffineRecurrence, number_of)
    values = np.array([[[1], [2]], [[3], [4]]], np.float32)
    assert tp.fold(digits, "a b c -> c")(values).tolist() == [1234]
    assert tp.fold(digits, "a b c -> a")(values).tolist() == [12, 34]


def test_coordinates_are_operands_of_an_aggregator() -> None:
    result = tp.fold(tp.aggregators.ArgMax(), "b c, @b -> c")(X[0])
    leaves = jax.tree.leaves(result)
    assert any(np.array_equal(leaf, X[0].argmax(0)) for leaf in leaves)


def test_a_pair_of_aggregators_runs_in_one_pass() -> None:
    both = tp.aggregators.Sum() & tp.aggregators.LogSumExp()
    graph = tp.trace(tp.fold(both, "a b c -> a"), X)
    assert len(graph.nodes) == 2
    total, logsumexp = graph(X)
    np.testing.assert_allclose(total, X.sum((1, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logsumexp, scipy.special.logsumexp(X, (1, 2)), rtol=1e-5)


def test_elements_may_be_transformed_on_the_way_in_and_out() -> None:
    root_mean_square = tp.aggregators.Mean().contramap(jnp.square).map(jnp.sqrt)
    np.testing.assert_allclose(tp.fold(root_mean_square, "a b c -> a")(X), np.sqrt((X**2).mean((1, 2))), rtol=1e-5)


def test_gradients_and_vmap_are_those_of_jax() -> None:
    variance = tp.fold(MOMENTS.map(lambda moments: moments["variance"]), "b c -> c")
    np.testing.assert_allclose(
        jax.jit(jax.jacobian(variance))(X[0]),
        jax.jit(jax.jacobian(lambda x: jnp.var(x, 0)))(X[0]),
        rtol=1e-4,
        atol=1e-6,
    )
    np.testing.assert_allclose(jax.jit(jax.vmap(variance))(X), X.var(1), rtol=1e-4)


POWERS = tp.aggregators.Sum().contramap(lambda x: x) & tp.aggregators.Sum().contramap(jnp.square)


def merged(split: tuple[int, ...]) -> tuple[float, float, float, float]:
    """Count, sum, sum of squares and standard deviation of 1, 2, 3, 4 folded in pieces of these sizes."""
    values = jnp.array([1.0, 2.0, 3.0, 4.0])
    pieces = [values[start:stop] for start, stop in itertools.pairwise(np.cumsum([0, *split]))]
    both = MOMENTS & POWERS
    state = both.monoid.fold([both.lift_many(piece) for piece in pieces])
    moments, (total, squares) = both.present(state)
    return float(moments["count"]), float(total), float(squares), float(np.sqrt(np.float64(moments["variance"])))


@pytest.mark.parametrize(
    "split", but([(4,), (1, 3), (2, 2), (3, 1), (1, 1, 1, 1), (0, 4), (2, 0, 2), (1, 2, 1, 0)], (2, 2), (3, 1), (0, 4))
)
def test_worked_case_6_every_split_gives_the_same(split: tuple[int, ...]) -> None:
    count, total, squares, deviation = merged(split)
    assert (count, total, squares) == (4, 10, 30)
    assert deviation == pytest.approx(1.118033988749895, rel=1e-6)


def test_worked_case_6_a_thousand_values_at_fan_in_ten_are_three_levels() -> None:
    fold = tp.Reduce(lambda x: x.sum(0), "piece n -> n", tp.monoids.Sum)
    values = jnp.arange(1000.0)
    sizes: list[int] = []
    while values.size > 1:
        values = fold(values.reshape(10, -1))
        sizes.append(values.size)
    assert sizes == [100, 10, 1]
    assert values[0] == 499500


def test_an_empty_fold_presents_the_identity() -> None:
    np.testing.assert_array_equal(tp.fold(tp.aggregators.Sum(), "r c -> c")(jnp.ones((0, 2))), np.zeros(2))
    result = tp.fold(MOMENTS, "r c -> c")(jnp.ones((0, 2)))
    assert list(result["count"]) == [0, 0]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: tp.fold(tp.monoids.Sum, "r c -> c"),  # pyright: ignore[reportArgumentType]
            "tp.fold takes an aggregator\n"
            "  got Monoid: Monoid(Sum)\n"
            "  Pass one of tp.aggregators, such as tp.aggregators.Moments(), or use tp.Reduce with a monoid.",
        ),
        (
            lambda: tp.fold(MOMENTS, "(2*r+[k]) c -> r"),
            "tp.fold takes bare dimensions and compositions, and gives one result of bare dimensions\n"
            "  signature (2*r+[k]) c -> r\n"
            "  Use tp.Reduce with a kernel of your own for windows, tp.rearrange to compose what comes out.",
        ),
        (
            lambda: tp.fold(MOMENTS, "r c -> r, c"),
            "tp.fold takes bare dimensions and compositions, and gives one result of bare dimensions\n"
            "  signature r c -> r, c\n"
            "  Use tp.Reduce with a kernel of your own for windows, tp.rearrange to compose what comes out.",
        ),
        (
            lambda: tp.fold(MOMENTS, "r c -> c")(X),
            "operand 0 of `Moments` does not have the axes of its signature.\n"
            "  r c -> c\n"
            "  ^^^\n"
            "  expected 2 axes, got 3\n"
            "  Pass an operand with 2 axes, or change the signature.",
        ),
        (
            lambda: tp.fold(tp.aggregators.Sum(), "n, n -> "),
            "tp.fold has 2 operands, and `Sum` takes 1 input\n"
            "  signature n, n -> ()\n"
            "  Leave the others out, or combine them in a kernel first.",
        ),
        (
            lambda: tp.fold(tp.aggregators.ArgMax(), "n v -> n"),
            "tp.fold has 1 operand, and `ArgMax` takes 2 inputs\n"
            "  signature n v -> n\n"
            '  Give what it takes besides values: weights, labels, or coordinates as in "v, @v -> ".',
        ),
    ],
)
def test_what_is_no_fold_is_refused(build: Any, text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        build()
    assert str(caught.value) == text
