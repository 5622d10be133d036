"""Scans against NumPy, jax.lax and Python loops."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import SignatureError

X = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
REVERSED = pytest.mark.parametrize("reverse", [False, True])


def prefixes(combine: Any, steps: np.ndarray[Any, Any], *, reverse: bool) -> np.ndarray[Any, Any]:
    """Inclusive prefixes along the last axis, by a ufunc."""
    flipped = steps[..., ::-1] if reverse else steps
    result = combine.accumulate(flipped, axis=-1)
    return result[..., ::-1] if reverse else result


@REVERSED
@pytest.mark.parametrize(
    ("monoid", "ufunc"),
    [
        (tp.monoids.Sum, np.add),
        (tp.monoids.Max, np.maximum),
        (tp.monoids.Min, np.minimum),
        (tp.monoids.Prod, np.multiply),
    ],
)
def test_scans_are_the_accumulations_of_numpy(monoid: tp.Monoid, ufunc: Any, reverse: bool) -> None:
    scan = tp.Scan(monoid, "... t -> ... t", over="t", reverse=reverse)
    np.testing.assert_allclose(scan(X), prefixes(ufunc, X, reverse=reverse), rtol=1e-5)
    np.testing.assert_allclose(scan(X[0]), prefixes(ufunc, X[0], reverse=reverse), rtol=1e-5)


@REVERSED
def test_booleans_are_scanned(reverse: bool) -> None:
    scan = tp.Scan(tp.monoids.Any, "r t -> r t", over="t", reverse=reverse)
    np.testing.assert_array_equal(scan(X > 0.8), prefixes(np.logical_or, X > 0.8, reverse=reverse))


@REVERSED
def test_an_exclusive_scan_is_the_inclusive_one_shifted(reverse: bool) -> None:
    scan = tp.Scan(tp.monoids.Sum, "r t -> r t", over="t", reverse=reverse, exclusive=True)
    np.testing.assert_allclose(scan(X), prefixes(np.add, X, reverse=reverse) - X, rtol=1e-4, atol=1e-5)
    assert not np.any(scan(X)[:, -1 if reverse else 0])


def test_the_scanned_dimension_may_stand_anywhere() -> None:
    scan = tp.Scan(tp.monoids.Sum, "t d -> t d", over="t")
    np.testing.assert_allclose(scan(X), np.cumsum(X, 0), rtol=1e-5)


def loop(a: Any, b: Any, *, reverse: bool, exclusive: bool) -> list[np.ndarray[Any, Any]]:
    """`h = a h + b` by a Python loop; reversed, the earlier step still acts last."""
    states: list[Any] = []
    coefficient, offset = np.ones(a.shape[1:]), np.zeros(a.shape[1:])
    for t in range(len(a))[:: -1 if reverse else 1]:
        if exclusive:
            states.append((coefficient, offset))
        if reverse:  # steps t..n-1 in order: those behind act on what step t gives
            coefficient, offset = coefficient * a[t], coefficient * b[t] + offset
        else:
            coefficient, offset = a[t] * coefficient, a[t] * offset + b[t]
        if not exclusive:
            states.append((coefficient, offset))
    return [np.stack(part) for part in zip(*states[:: -1 if reverse else 1], strict=True)]


@REVERSED
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_recurrence_is_the_python_loop(reverse: bool, exclusive: bool) -> None:
    a, b = np.random.default_rng(1).uniform(0.5, 1.5, size=(2, 7, 3)).astype(np.float32)
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d, t d", over="t", reverse=reverse, exclusive=exclusive)
    for ours, theirs in zip(scan(a, b), loop(a, b, reverse=reverse, exclusive=exclusive), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def states_of(a: Any, b: Any) -> Any:
    return a, b


def offset_of(state: Any) -> Any:
    return state[1]


def test_a_dense_recurrence_with_its_own_axes_is_the_python_loop() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(5, 2, 2)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    scan = tp.Scan(
        tp.monoids.AffineRecurrenceDense,
        "t [i] [j], t [i] -> t [i]",
        over="t",
        kernel=states_of,
        carrier="t row column, t entry",
        present=offset_of,
    )
    h, expected = np.zeros(2), []
    for matrix, vector in zip(a, b, strict=True):
        h = matrix @ h + vector
        expected.append(h)
    np.testing.assert_allclose(scan(a, b), expected, rtol=1e-4, atol=1e-5)


def weights(x: Any) -> Any:
    return x, jnp.ones_like(x)


@REVERSED
def test_a_presented_scan_is_that_of_lax(reverse: bool) -> None:
    scan = tp.Scan(
        tp.monoids.LogSumExp,
        "r t -> r t",
        over="t",
        kernel=weights,
        present=tp.monoids.logsumexp_value,
        reverse=reverse,
    )
    np.testing.assert_allclose(scan(X), jax.lax.cumlogsumexp(X, axis=1, reverse=reverse), rtol=1e-5)


def test_gradients_and_vmap_are_those_of_jax() -> None:
    a, b = np.random.default_rng(1).uniform(0.5, 1.5, size=(2, 5, 3)).astype(np.float32)
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d, t d", over="t")

    def reference(a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda h, step: (step[0] * h + step[1],) * 2, jnp.zeros(a.shape[1:]), (a, b))[1]

    ours = jax.jit(jax.grad(lambda a, b: (scan(a, b)[1] ** 2).sum(), argnums=(0, 1)))(a, b)
    theirs = jax.jit(jax.grad(lambda a, b: (reference(a, b) ** 2).sum(), argnums=(0, 1)))(a, b)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(lambda a: scan(a, b)[1]))(np.stack([a, b])), [reference(a, b), reference(b, b)], rtol=1e-4
    )


RECURRENCE = functools.partial(tp.Scan, tp.monoids.AffineRecurrence, "t d, t d -> t d, t d", over="t")


@REVERSED
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_scan_begins_with_a_state_and_gives_the_last_one(reverse: bool, exclusive: bool) -> None:
    a, b = np.random.default_rng(1).uniform(0.5, 1.5, size=(2, 6, 3)).astype(np.float32)
    first = np.random.default_rng(2).uniform(0.5, 1.5, size=(2, 3)).astype(np.float32)

    @tp.program
    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        return RECURRENCE(init=(c, d), final=True, reverse=reverse, exclusive=exclusive)(a, b)

    prefixes_, total = program(a, b, *first)
    place = len(a) if reverse else 0
    longer = [np.insert(steps, place, start, axis=0) for steps, start in zip((a, b), first, strict=True)]
    expected = loop(*longer, reverse=reverse, exclusive=exclusive)
    inside = slice(0, -1) if reverse else slice(1, None)
    whole = loop(*longer, reverse=reverse, exclusive=False)
    for ours, last, theirs, all_ in zip(prefixes_, total, expected, whole, strict=True):
        np.testing.assert_allclose(ours, theirs[inside], rtol=1e-4)
        np.testing.assert_allclose(last, all_[0 if reverse else -1], rtol=1e-4)


def test_one_number_begins_every_leaf() -> None:
    scan = tp.Scan(tp.monoids.Max, "... t -> ... t", over="t", init=0.5, final=True)
    prefixes_, total = scan(X)
    np.testing.assert_array_equal(prefixes_, np.maximum(np.maximum.accumulate(X, 1), 0.5))
    np.testing.assert_array_equal(total, np.maximum(X.max(1), 0.5))


def test_the_ends_of_a_presented_scan_with_its_own_axes() -> None:
    rng = np.random.default_rng(2)
    a, b, h = (rng.normal(size=s).astype(np.float32) for s in ((5, 2, 2), (5, 2), (2,)))

    @tp.program
    def program(a: Any, b: Any, eye: Any, h: Any) -> Any:
        scan = tp.Scan(
            tp.monoids.AffineRecurrenceDense,
            "t [i] [j], t [i] -> t [i]",
            over="t",
            kernel=states_of,
            carrier="t row column, t entry",
            present=offset_of,
            init=(eye, h),
            final=True,
        )
        return scan(a, b)

    prefixes_, last = program(a, b, np.eye(2, dtype=np.float32), h)
    state, expected = h, []
    for matrix, vector in zip(a, b, strict=True):
        state = matrix @ state + vector
        expected.append(state)
    np.testing.assert_allclose(prefixes_, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, expected[-1], rtol=1e-4, atol=1e-5)


def test_the_ends_are_stored_with_the_graph() -> None:
    scan = tp.Scan(
        tp.monoids.LogSumExp, "r t -> r t", over="t", kernel=weights, present=tp.monoids.logsumexp_value, final=True
    )
    graph = tp.trace(scan, X)
    again = tp.Graph.from_json(graph.to_json(), allow=("tests",))
    assert again.key == graph.key
    np.testing.assert_allclose(again(X)[1], jax.nn.logsumexp(X, 1), rtol=1e-5)


def test_an_empty_scan_ends_where_it_begins() -> None:
    prefixes_, total = tp.Scan(tp.monoids.Sum, "t -> t", over="t", init=3, final=True)(jnp.ones(0))
    assert prefixes_.shape == (0,) and total == 3


@pytest.mark.parametrize("exclusive", [False, True])
def test_an_empty_scan_is_empty(exclusive: bool) -> None:
    assert tp.Scan(tp.monoids.Sum, "t -> t", over="t", exclusive=exclusive)(jnp.ones(0)).shape == (0,)
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t, t -> t, t", over="t", exclusive=exclusive)
    assert [leaf.shape for leaf in scan(jnp.ones(0), jnp.ones(0))] == [(0,), (0,)]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: tp.Scan(tp.monoids.Sum, "r t -> r t", over="s"),
            "tp.Scan(scan) cannot scan over `s`\n"
            "  signature r t -> r t\n"
            "  expected `s` on both sides, and no dimension on the left alone\n"
            "  Scan over a dimension that the result carries; fold others with tp.Reduce first.",
        ),
        (
            lambda: tp.Scan(tp.monoids.Sum, "r t -> t", over="t"),
            "tp.Scan(scan) cannot scan over `t`\n"
            "  signature r t -> t\n"
            "  expected `t` on both sides, and no dimension on the left alone\n"
            "  Scan over a dimension that the result carries; fold others with tp.Reduce first.",
        ),
        (
            lambda: tp.Scan(None, "t -> t", over="t"),  # pyright: ignore[reportArgumentType]
            "tp.Scan(scan) needs a monoid\n"
            "  signature t -> t\n"
            "  got no monoid\n"
            "  Pass one of tp.monoids, such as tp.monoids.Sum, or your own tp.Monoid(identity, combine).",
        ),
        (
            lambda: RECURRENCE(init=(1.0, jnp.ones(7)))(X, X),
            "`init` of `scan` is no state of its monoid\n"
            "  expected PyTreeDef((*, *)), of numbers and values of the program\n"
            "  got      PyTreeDef((*, *)), of ArrayImpl, float\n"
            "  Pass one number, or a pytree like the state; arrays come in as arguments of the program.",
        ),
    ],
)
def test_what_is_no_scan_is_refused(build: Any, text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        build()
    assert str(caught.value) == text
