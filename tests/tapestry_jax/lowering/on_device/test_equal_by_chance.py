"""Kernels that select: boxes come to what the whole does of most numbers, by chance, and are wrong of others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.simulated.sampled import in_numpy

Max, Min, Sum = tp.monoids.Max, tp.monoids.Min, tp.monoids.Sum
PLANS = {"devices": (2, "d"), "chunks": (1, tp.chunks(3))}


def flipped(v: Any) -> Any:
    return lax.cond(v.sum() > 0, lambda u: u, lambda u: -u, v)


def flipped_if(choice: Any) -> Any:
    def run(v: Any) -> Any:
        return lax.cond(choice(v), lambda u: -u, lambda u: u, v)

    return run


def until_large(v: Any) -> Any:
    return lax.while_loop(lambda u: u.sum() < 5, lambda u: u + 1, v)


def each_until_large(v: Any) -> Any:
    return lax.while_loop(lambda u: (u < 5).any(), lambda u: jnp.where(u < 5, u + 1, u), v)


def only_largest(v: Any) -> Any:
    return jnp.where(v == v.max(0), v, 0)


def shifted(v: Any) -> Any:
    return jnp.concatenate([jnp.zeros_like(v[:1]), v[:-1]])


def first_three(v: Any) -> Any:
    return jnp.where(jnp.arange(len(v)) < 3, v, 0)


def turned_rows(x: Any) -> Any:
    largest = jnp.sin(x).max(1)
    return lax.cond(largest.sum() > 0, lambda u: u, lambda u: -u, largest)


def capped(v: Any) -> Any:
    return lax.cond((v > 2).any(), lambda u: jnp.minimum(u, 2), lambda u: u, v)


def without_nan(v: Any) -> Any:
    return lax.cond(jnp.isnan(v).any(), lambda u: jnp.where(jnp.isnan(u), 0, u), lambda u: u, v)


@jax.vmap
def root(v: Any) -> Any:
    def goes_on(carried: Any) -> Any:
        guess, turns = carried
        return (abs(guess * guess - abs(v)) > 1e-3) & (turns < 20)

    return lax.while_loop(goes_on, lambda held: (0.5 * (held[0] + abs(v) / held[0]), held[1] + 1), (1.0 + abs(v), 0))[0]


# By name: the kernel, its signature, the dimension that is cut, and what merges its parts.
Row = tuple[Callable[..., Any], str, str, Any]
WRONG: dict[str, Row] = {
    "a condition": (flipped, "n -> n", "n", None),
    "a loop until all are large": (until_large, "n -> n", "n", None),
    "a condition on what is nearly always large": (turned_rows, "n [f] -> n", "n", None),
    "the largest of each, least of parts": (lambda x: x.max(), "n c -> ", "c", Min),
    "the largest of each by ties": (lambda x: only_largest(x).sum(), "n c -> ", "n", Max),
    "larger by far": (lambda x, y: jnp.maximum(shifted(x)[:, None], 9 + y * y).max(1), "n, m -> n", "n", Max),
    "places of few": (
        lambda x, y: jnp.maximum(x[:, None], first_three(y) * y[:1]).max(1),
        "n, m -> n",
        "m",
        Min,
    ),
    "added in a loop": (lambda x: lax.fori_loop(0, 3, lambda _, u: u + 1, x.sum(0)), "n [c] -> [c]", "n", Sum),
}
RIGHT: dict[str, Row] = {
    "a loop that stops for each": (each_until_large, "n -> n", "n", None),
    "a choice for each": (lambda v: jnp.where(v > 0, v, -2 * v), "n -> n", "n", None),
    "the largest of all": (lambda x: x.max(), "n c -> ", "c", Max),
    "the largest along what is whole": (lambda x: only_largest(x.T).T, "n [c] -> n [c]", "n", None),
    "the largest of largest": (lambda x, y: jnp.maximum(x[:, None], y * y).max(1), "n, m -> n", "m", Max),
    "multiplied in a loop": (lambda x: lax.fori_loop(0, 3, lambda _, u: u * 2, x.sum(0)), "n [c] -> [c]", "n", Sum),
    "a choice that changes nothing": (capped, "n -> n", "n", None),
    "a loop for each row": (lambda v: root(v * 1.0), "n -> n", "n", None),
    "a choice in turn": (
        lambda v: lax.map(lambda u: lax.cond(u > 0, lambda: u, lambda: -2 * u), v),
        "n -> n",
        "n",
        None,
    ),
    "sorted first": (lambda x: jnp.sort(x)[-1], "n -> ", "n", Max),
}


def planned(row: Row, plan: str, dtype: str) -> tuple[Any, Any, list[Any]]:
    kernel, signature, cut, monoid = row
    rng, sizes = np.random.default_rng(0), {"n": 8, "m": 6, "c": 5, "[c]": 5, "[f]": 20}
    read = [operand.split() for operand in signature.split("->")[0].split(",")]
    arrays = [rng.integers(-4, 5, [sizes[dim] for dim in dims]).astype(dtype) for dims in read]
    arrow = tp.Map(kernel, signature) if monoid is None else tp.Reduce(kernel, signature, monoid)
    devices, entry = PLANS[plan]
    return arrow, tp.plan(tp.trace(arrow, *arrays), tp.mesh(d=devices), {cut: entry}), arrays


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_equal_by_chance_alone_is_refused(name: str, plan: str, dtype: str) -> None:
    _, given, _ = planned(WRONG[name], plan, dtype)
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        given.compile().lower()


def running(v: Any) -> Any:
    return lax.scan(lambda carried, u: (carried + u, carried + u), jnp.zeros((), v.dtype), v)[1]


def folded(fold: Callable[[Any], Any], choose: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
    def run(x: Any) -> Any:
        u = fold(x)
        return jnp.where(choose(u), u, other(u))

    return run


# Folds that choose by what they have folded: hardly any numbers are on both sides of what they compare.
FOLDS_WRONG: dict[str, Row] = {
    "a little more": (folded(lambda x: x.max(0), lambda u: u.max() > -3, lambda u: u + 1), "n [c] -> [c]", "n", Max),
    "by squares": (folded(lambda x: (x * x).min(0), lambda u: u.min() > 5, lambda u: u + 1), "n [c] -> [c]", "n", Min),
    "by sums": (folded(lambda x: jnp.exp(x).sum(0), lambda u: u > 2, lambda u: u + 1), "n [c] -> [c]", "n", Max),
    "multiplied by truths": (lambda x: x.max(0) * (x.max() < 20), "n [c] -> [c]", "n", Max),
    "spread again": (lambda x: jnp.where(x - x.max(0) > -40, x, x - 50).max(0), "n [c] -> [c]", "n", Sum),
}


def _steps() -> Any:
    return jnp.asarray([0, 1e6, 1e6, 0, 1e6])


def _beside(total: Any) -> Any:
    return jnp.stack([jnp.full_like(total, 1e6), total])


def _larger_in_a_window(total: Any) -> Any:
    return lax.reduce_window(_beside(total), -jnp.inf, lax.max, (2, 1), (1, 1), "VALID")[0]


def _picked(one: Any, other: Any) -> Any:
    return jnp.where(one > other, one, other)


def added(more: Callable[[Any], Any]) -> Row:
    return (lambda x: x.sum(0) + more(x.sum(0)), "n [c] -> [c]", "n", Sum)


# So they do without a comparison, and most by numbers that are far from those that are drawn.
FOLDS_WRONG |= {
    "what is above": added(lambda s: jax.nn.relu(s - 1e6)),
    "within bounds": (lambda x: jnp.clip(x.sum(0), -1e6, 1e6), "n [c] -> [c]", "n", Sum),
    "clamped": (lambda x: lax.clamp(-1e6, x.sum(0), 1e6), "n [c] -> [c]", "n", Sum),
    "a sign": added(lambda s: jnp.sign(s - 1e6) + 1),
    "whole parts": added(lambda s: jnp.floor(abs(s) / 1e6)),
    "rounded": added(lambda s: jnp.round(abs(s) / 2e6)),
    "a whole number": added(lambda s: (s / 1e6).astype(jnp.int32).astype(s.dtype)),
    "a truth": added(lambda s: jnp.floor(abs(s) / 1e6).astype(bool).astype(s.dtype)),
    "a remainder": (lambda x: lax.rem(x.sum(0), jnp.float32(1e6)), "n [c] -> [c]", "n", Sum),
    "a place in a table": added(lambda s: jnp.asarray([0.0, 1.0])[jnp.clip((abs(s) / 1e6).astype(int), 0, 1)]),
    "a place among edges": added(lambda s: jnp.searchsorted(jnp.asarray([1e6]), s).astype(s.dtype)),
    "the place of the larger": added(lambda s: jnp.argmax(jnp.stack([jnp.full_like(s, 1e6), s]), 0).astype(s.dtype)),
    "in order": added(lambda s: jnp.sort(jnp.stack([jnp.full_like(s, 1e6), s]), 0)[1] - 1e6),
    "the larger of two": added(lambda s: jnp.stack([jnp.full_like(s, 1e6), s]).max(0) - 1e6),
    "the larger of two, in a window": added(lambda s: _larger_in_a_window(s) - 1e6),
    "the larger of two, written": added(lambda s: jnp.full_like(s, 1e6).at[jnp.arange(len(s))].max(s) - 1e6),
    "the larger of two, reduced": added(lambda s: lax.reduce(_beside(s), -jnp.inf, _picked, (0,)) - 1e6),
    "a place in a table, clipped": added(
        lambda s: jnp.take(jnp.arange(4e4), s.astype(int), mode="clip") - jnp.clip(s, 0)
    ),
    # Of several thresholds, or of two that undo each other, the first tells nothing of the others.
    "two thresholds": added(lambda s: (s[:, None] > jnp.asarray([0.0, 1e6])) @ jnp.asarray([0.0, 1e6])),
    "a threshold for each": added(lambda s: jnp.where(s > _steps(), _steps(), 0.0)),
    "cut off": added(lambda s: 1e6 * jnp.trunc(s / 1e6)),
    "in order, of three": added(lambda s: jnp.sort(jnp.stack([0 * s, -abs(s), s - 1e6]), 0)[-1]),
    # Nothing is compared.
    "a bump": added(lambda s: 1e6 * jnp.exp(-(((s - 1e6) / 1e6) ** 2))),
    "a bend": added(lambda s: jnp.sqrt((s - 1e6) ** 2 + 1)),
    # Between what is drawn by itself and what is far, and narrower than steps of what is drawn there.
    "a bump nearby": added(lambda s: jnp.exp(-((s - 50) ** 2))),
    "a narrow bump": added(lambda s: jnp.exp(-100 * (s - 20) ** 2)),
    "a narrow bump far off": added(lambda s: 10 * jnp.exp(-((s - 3000) ** 2))),
    "a bump far off, beside many numbers nearby": added(
        lambda s: (
            functools.reduce(lambda s, by: s / by * by, (9.0, 12.0, 15.0, 20.0), s) + 10 * jnp.exp(-((s - 3000) ** 2))
        )
    ),
    "a narrow bump of the largest": (
        lambda x: x.max(0) + 30 * jnp.exp(-100 * (x.max(0) - 20) ** 2),
        "n [c] -> [c]",
        "n",
        Max,
    ),
    "the range of float16": added(lambda s: 1e6 * jnp.isinf((s * 0.065).astype(jnp.float16))),
    "a domain": added(lambda s: 1e6 * jnp.isnan(jnp.arcsin(s / 1e6))),
    "a pole": added(lambda s: 1e6 / (1 + (s - 1e6) ** 2)),
}
FOLDS_RIGHT: dict[str, Row] = {
    "a softplus of the largest": (lambda x: jax.nn.softplus(x.max(0)), "n [c] -> [c]", "n", Max),
    "what a table has at a place": (
        lambda x: x.max(0) + 0 * jnp.take(jnp.zeros(10), jnp.argmax(x.max(0)), mode="clip"),
        "n [c] -> [c]",
        "n",
        Max,
    ),
    "a step of the largest": (lambda x: jnp.heaviside(x.max(0), 0.5), "n [c] -> [c]", "n", Max),
    "the larger of a number": (lambda x: jnp.maximum(x.max(0), -1e30), "n [c] -> [c]", "n", Max),
    "above zero": (lambda x: jax.nn.relu(x.max(0)), "n [c] -> [c]", "n", Max),
    "close to zero": (lambda x: jnp.clip(x.max(0), -2, 2), "n [c] -> [c]", "n", Max),
    "whole parts of the largest": (lambda x: jnp.floor(x.max(0)), "n [c] -> [c]", "n", Max),
    "its sign": (lambda x: jnp.sign(x.max(0)), "n [c] -> [c]", "n", Max),
    "a scale": (lambda x: jnp.clip(abs(x).max(0), 1e-12, 448), "n [c] -> [c]", "n", Max),
    "between what nothing exceeds": (lambda x: jnp.clip(jax.nn.sigmoid(x).max(0), 0, 1), "n [c] -> [c]", "n", Max),
    "of bits": (lambda x: jnp.round(jax.nn.sigmoid(x).max(0) * 255), "n [c] -> [c]", "n", Max),
    "above zero in turn": (
        lambda x: lax.scan(lambda c, v: (c + jax.nn.relu(v), None), jnp.zeros_like(x[0]), x)[0],
        "n [c] -> [c]",
        "n",
        Sum,
    ),
    "of a single one": (lambda x: x.reshape(-1, 1, *x.shape[1:]).max(0).max(0), "n [c] -> [c]", "n", Max),
    "of remainders": (
        lambda x: jnp.mod(x.sum(0), 2 * jnp.pi),
        "n [c] -> [c]",
        "n",
        tp.Monoid(0.0, lambda a, b: jnp.mod(a + b, 2 * jnp.pi)),
    ),
    "shifted by what is no number": (
        lambda x: jnp.exp(x - jnp.where(x.max(0) == -jnp.inf, 0, 0 * x.max(0))).sum(0),
        "n [c] -> [c]",
        "n",
        Sum,
    ),
    "shifted by what is masked": (
        lambda x: jnp.where(x.max(0) <= -1e30, -1e30, x.max(0)),
        "n [c] -> [c]",
        "n",
        Max,
    ),
    "of the place of the largest": (
        lambda x: jnp.take_along_axis(x, jnp.argmax(x, 0)[None], 0)[0],
        "n [c] -> [c]",
        "n",
        Max,
    ),
    "one more than some": (lambda x: jnp.where(x.max(0) > 3, 2 * x.max(0), x.max(0) + 3), "n [c] -> [c]", "n", Max),
    "whether any is": (lambda x: jnp.where((x > 2).any(0), 1, 0), "n [c] -> [c]", "n", Max),
    "the larger of two in turn": (
        lambda x: lax.scan(lambda c, v: (jnp.where(v > c, v, c), None), x[0], x)[0],
        "n [c] -> [c]",
        "n",
        Max,
    ),
    "nothing of nothing": (
        lambda x: lax.cond((x != 0).any(), lambda: x.sum(0), lambda: jnp.zeros_like(x[0])),
        "n [c] -> [c]",
        "n",
        Sum,
    ),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", FOLDS_WRONG)
def test_folds_that_choose_by_what_they_have_folded_are_refused(name: str, plan: str) -> None:
    _, given, _ = planned(FOLDS_WRONG[name], plan, "float32")
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        given.compile().lower()


@pytest.mark.parametrize("name", FOLDS_RIGHT)
def test_folds_that_choose_and_are_right_are_planned(name: str) -> None:
    arrow, given, arrays = planned(FOLDS_RIGHT[name], "chunks", "float32")
    np.testing.assert_allclose(given.compile()(*arrays), in_numpy(arrow)(*arrays), rtol=1e-5)


@pytest.mark.parametrize("plan", PLANS)
def test_a_choice_by_what_is_no_number_is_asked_of_such(plan: str) -> None:
    arrow, given, _ = planned((without_nan, "n -> n", "n", None), plan, "float32")
    array = np.array([1, np.nan, 3, 4, 5, 6, 7, np.nan], np.float32)
    np.testing.assert_array_equal(given.compile()(array), arrow(array))


# What most numbers choose alike, of a box and of the whole.
SELDOM: dict[str, Row] = {
    "all but large": (flipped_if(lambda v: (v > 1e6).any()), "n -> n", "n", None),
    "far from nothing": (flipped_if(lambda v: (v * v).sum() < 1e-12), "n -> n", "n", None),
    "one number in billions": (flipped_if(lambda v: jnp.abs(2 * v).max() == 0.1234567), "n -> n", "n", None),
    "a product": (flipped_if(lambda v: jnp.prod(jnp.exp(v)) < 1e-30), "n -> n", "n", None),
    "a total by a loop": (lambda v: v + jax.nn.relu(running(v)[-1] - 1e6), "n -> n", "n", None),
    "a total by a loop, clipped": (lambda v: v + jnp.clip(running(v)[-1], -1e9, -1e8), "n -> n", "n", None),
    "a loop that hardly ever begins": (
        lambda v: lax.while_loop(lambda u: u.sum() > 1e8, lambda u: u / 2, v),
        "n -> n",
        "n",
        None,
    ),
    "of a fold": (lambda x: flipped_if(lambda v: v > 1e9)(x.sum()), "n -> ", "n", Sum),
    "of a fold without a condition": (lambda x: jnp.where((x * x).max() < 0, 0, x.sum()), "n -> ", "n", Sum),
    "of a fold, on a slope far away": (lambda x: x.sum() + jax.nn.sigmoid(x.max() - 1e6), "n -> ", "n", Sum),
    "a total by a loop, on a slope": (lambda v: v + jnp.tanh(running(v)[-1] - 1e6), "n -> n", "n", None),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", SELDOM)
def test_what_no_numbers_tell_is_refused(name: str, plan: str) -> None:
    _, given, _ = planned(SELDOM[name], plan, "float32")
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        given.compile().lower()


def test_the_error_says_that_it_is_not_known() -> None:
    _, given, _ = planned(SELDOM["one number in billions"], "devices", "float32")
    with pytest.raises(tp.KernelError) as caught:
        given.compile().lower()
    assert str(caught.value) == (
        "the kernel of `run` is not right for a box of any size.\n"
        "  signature n -> n\n"
        "  box n=4\n"
        "  cells choose together which way it takes (`jax.lax.cond`, a loop, what they come to); of all that was "
        "tried such boxes chose as the whole does, so whether they come to the same is not known\n"
        "  Choose for each cell (`jnp.where`; `jax.vmap` makes it of a choice and ends a loop for each row), write "
        "[dim] for what it needs whole, or do not cut these axes."
    )


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", RIGHT)
def test_what_selects_and_is_right_is_planned(name: str, plan: str, dtype: str) -> None:
    arrow, given, arrays = planned(RIGHT[name], plan, dtype)
    np.testing.assert_allclose(in_numpy(given.compile())(*arrays), in_numpy(arrow)(*arrays), rtol=1e-5, atol=1e-5)


def test_a_table_that_ends_is_a_choice_of_whole_numbers() -> None:
    fold = tp.Reduce(lambda x: jnp.take(jnp.arange(20_000), x.sum(0), mode="clip"), "n -> ", Sum)
    with pytest.raises(tp.KernelError, match="chooses by what it has folded"):
        tp.plan(tp.trace(fold, jnp.arange(8)), tp.mesh(d=2), {"n": "d"}).compile().lower()
