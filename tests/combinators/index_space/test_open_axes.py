"""`...` in any place, repeated axes, folds over composed axes, loops that carry several values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, Graph, SignatureError
from combinators.graphs.nodes import Loop

X = jnp.arange(24.0).reshape(2, 3, 4)
RANKS = [X[:, 0, 0], X[:, :, 0], X]
SOFTMAX = tp.Map(lambda x: jax.nn.softmax(x, 0), "[c] ... -> [c] ...")


@pytest.mark.parametrize("x", RANKS, ids=["rank 1", "rank 2", "rank 3"])
class TestEllipsisBehind:
    def test_a_map(self, x: Any) -> None:
        np.testing.assert_allclose(SOFTMAX(x), jax.nn.softmax(x, 0), rtol=1e-6)

    def test_a_fold(self, x: Any) -> None:
        np.testing.assert_allclose(tp.fold(tp.aggregators.Sum(), "a ... -> ...")(x), x.sum(0))

    def test_a_scan(self, x: Any) -> None:
        np.testing.assert_allclose(tp.Scan(tp.monoids.Sum, "a ... -> a ...", over="a")(x), x.cumsum(0))
        means = tp.scan(tp.aggregators.Mean(), "a ... -> a ...", over="a")
        count = jnp.arange(1, 3).reshape(-1, *(1,) * (x.ndim - 1))
        np.testing.assert_allclose(means(x), x.cumsum(0) / count)

    def test_a_window(self, x: Any) -> None:
        got = tp.window(tp.aggregators.Sum(), 2, "a ... -> a ...", over="a")(x)
        np.testing.assert_allclose(got, x + jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]]))

    def test_an_einsum(self, x: Any) -> None:
        w = jnp.arange(10.0).reshape(2, 5)
        np.testing.assert_allclose(tp.einsum("a ..., a o -> o ...")(x, w), jnp.einsum("a...,ao->o...", x, w))

    def test_a_rearrangement(self, x: Any) -> None:
        np.testing.assert_array_equal(tp.rearrange("a ... -> ... a")(x), jnp.moveaxis(x, 0, -1))

    def test_a_program(self, x: Any) -> None:
        np.testing.assert_allclose(tp.program("a ... -> a ...")(lambda v: SOFTMAX(v))(x), jax.nn.softmax(x, 0))
        with pytest.raises(SignatureError, match="and not `b`"):
            tp.program("a ... -> b ...")(lambda v: SOFTMAX(v))(x)

    def test_it_is_stored(self, x: Any) -> None:
        program = tp.einsum("a ..., a -> ...") >> tp.rearrange("... -> ... 1")
        graph = tp.trace(program, x, jnp.ones(2))
        again = Graph.from_json(graph.to_json())
        assert again.key == graph.key and again.to_json() == graph.to_json()


def test_ellipsis_in_the_middle() -> None:
    np.testing.assert_allclose(tp.einsum("a ... b -> ...")(X), X.sum((0, 2)))
    np.testing.assert_allclose(tp.fold(tp.aggregators.Sum(), "a ... b -> ... b")(X), X.sum(0))
    np.testing.assert_array_equal(tp.rearrange("a ... b -> (b a) ...")(X), jnp.transpose(X, (2, 0, 1)).reshape(8, 3))
    outer = tp.Map(lambda x, y: x[:, :, None] * y[None, :, :], "a ..., ... b -> a ... b")
    np.testing.assert_allclose(outer(X[:, :, 0], X[0]), X[:, :, :1] * X[0])
    assert str(tp.Signature.parse("a ... b, ... -> b ...")) == "a ... b, ... -> b ..."


def test_ellipses_of_two_operands_stand_for_the_same_axes() -> None:
    with pytest.raises(SignatureError) as caught:
        tp.einsum("a ..., ... b -> a b")(X, X[0])
    assert "a ..., ... b -> a b" in str(caught.value)
    with pytest.raises(CompositionError, match="at least 2 axes"):
        tp.Map(jnp.sin, "a -> a") >> tp.Map(jnp.sin, "a ... b -> a ... b")


def test_axes_before_an_ellipsis_are_held_against_each_other() -> None:
    three, four = ({"d": size} for size in (3, 4))
    first = tp.Map(lambda x: x, "a ... -> a ...", sizes={"a": 3})
    with pytest.raises(CompositionError, match="they differ at `d`"):
        first >> tp.Map(lambda x: x, "d ... -> d ...", sizes=four)
    assert (first >> tp.Map(lambda x: x, "d ... -> d ...", sizes=three))(jnp.ones((3, 2))).shape == (3, 2)
    assert (first >> tp.Map(lambda x: x, "... d -> ... d", sizes=four))(jnp.ones((3, 4))).shape == (3, 4)


# Repeated axes


@pytest.mark.parametrize(
    ("signature", "sizes", "expected"),
    [
        ("a b -> a b r", {"r": 2}, jnp.stack([X[:, :, 0]] * 2, -1)),
        ("a b -> r a b", {"r": 3}, jnp.stack([X[:, :, 0]] * 3)),
        ("a b -> (a r) (s b)", {"r": 2, "s": 2}, jnp.tile(jnp.repeat(X[:, :, 0], 2, 0), (1, 2))),
        ("a b -> b (r s) a", {"r": 2, "s": 3}, jnp.stack([X[:, :, 0].T] * 6, 1)),
        ("a b -> a r b", {"r": 0}, jnp.zeros((2, 0, 3))),
        ("a ... -> a r ...", {"r": 2}, jnp.stack([X[:, :, 0]] * 2, 1)),
    ],
)
def test_names_on_the_right_alone_repeat(signature: str, sizes: dict[str, int], expected: Any) -> None:
    np.testing.assert_array_equal(tp.rearrange(signature, **sizes)(X[:, :, 0]), expected)


def test_the_gradient_of_a_repetition_is_a_sum() -> None:
    repeat = tp.rearrange("a b -> r (a s) b", r=3, s=2)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: repeat(x).sum()))(X[0]), jnp.full_like(X[0], 6))


# Folds over composed axes


@pytest.mark.parametrize(
    ("signature", "sizes", "expected"),
    [
        ("(h d) c -> c", {"h": 2}, X.reshape(6, 4).sum(0)),
        ("(h d) c -> d", {"h": 2}, X.sum((0, 2))),
        ("(h d) c -> h", {"d": 3}, X.sum((1, 2))),
        ("(h d) c -> c d", {"d": 3}, X.sum(0).T),
        ("c (h d e) -> d c", {"h": 1, "e": 2}, X.reshape(2, 1, 6, 2).sum((1, 3)).T),
    ],
)
def test_a_fold_takes_compositions_apart(signature: str, sizes: dict[str, int], expected: Any) -> None:
    x = X.reshape(2, 12) if signature.startswith("c") else X.reshape(6, 4)
    fold = tp.fold(tp.aggregators.Sum(), signature, sizes=sizes)
    np.testing.assert_allclose(fold(x), expected)
    graph = tp.trace(fold, x)
    assert Graph.from_json(graph.to_json()).key == graph.key


def test_a_fold_keeps_the_order_of_a_composition() -> None:
    x = jnp.asarray([[jnp.nan], [1.0], [2.0], [3.0]])
    first = tp.fold(tp.aggregators.Last(), "(h d) c -> d c", sizes={"d": 2})
    np.testing.assert_array_equal(first(x)["value"], [[2.0], [3.0]])


def test_a_fold_gives_no_compositions() -> None:
    with pytest.raises(SignatureError, match="gives one result of bare dimensions"):
        tp.fold(tp.aggregators.Sum(), "a b c -> (a b)")


# Loops that carry several values


def test_a_step_of_two_results_carries_two_operands() -> None:
    def step(u: Any, v: Any, k: Any) -> Any:
        return u + k * v, v - k * u

    u, v = X[0], X[1]
    got = tp.iterate(step, 3)(u, v, jnp.float32(0.5))
    for _ in range(3):
        u, v = u + 0.5 * v, v - 0.5 * u
    np.testing.assert_allclose(got, (u, v))
    loop = tp.trace(tp.iterate(step, 3), u, v, jnp.float32(0.5)).nodes[-1]
    assert isinstance(loop, Loop) and [node.path for node in loop.body.inputs] == ["carry/0", "carry/1", "constant/0"]


def test_arrows_of_two_results_are_steps() -> None:
    sin, cos = tp.Map(jnp.sin, "a -> a"), tp.Map(jnp.cos, "b -> b")
    got = tp.iterate(sin * cos, 2)(X[0, 0], X[1, 1])
    np.testing.assert_allclose(got, (jnp.sin(jnp.sin(X[0, 0])), jnp.cos(jnp.cos(X[1, 1]))), rtol=1e-6)
    assert tp.iterate(sin * cos, 0)(X[0, 0], X[1, 1])[1].shape == (4,)


def test_a_carry_that_is_a_pair_stays_one_operand() -> None:
    got = tp.iterate(lambda pair, k: (pair[1], pair[0] + k), 3)((X[0], X[1]), X[1])
    a, b = X[0], X[1]
    for _ in range(3):
        a, b = b, a + X[1]
    np.testing.assert_allclose(got, (a, b))


@pytest.mark.parametrize(
    ("step", "operands"),
    [(lambda u: (u, u), (X,)), (lambda u, v: (u, v, v), (X, X)), (lambda u, v: (v, u), (X, X[0]))],
    ids=["too few operands", "too many results", "other types"],
)
def test_carries_that_do_not_come_out_as_they_went_in_are_refused(step: Any, operands: Any) -> None:
    with pytest.raises(CompositionError, match="`iterate` cannot repeat its step"):
        tp.iterate(step, 2)(*operands)
