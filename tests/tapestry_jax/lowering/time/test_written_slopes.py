"""Derivatives that somebody wrote are held to boxes in numbers, also those that select, count or give of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.simulated.sampled import in_numpy

LENGTH = 9
X = np.random.default_rng(3).normal(size=LENGTH).astype(np.float32)
PLANS = {"devices": (2, "d"), "uneven": (4, "d"), "chunks": (1, tp.chunks(2)), "stripes": (2, tp.striped("d"))}
SIGNATURES = {"map": "n -> n", "fold": "n -> "}

Slopes = Callable[[Any, Any], Any]
WRONG: dict[str, Slopes] = {
    "their number, in a loop": lambda x, g: lax.fori_loop(0, len(g), lambda _, u: u + 1, g),
    "their number, by what it makes": lambda x, g: g + jnp.ones(len(g)).sum(),
    "a size that it chooses by": lambda x, g: g + 1 if len(g) > 5 else g,
    "a condition": lambda x, g: lax.cond((x * g).sum() > 0, lambda u: u, lambda u: -u, g),
    "until all are large": lambda x, g: lax.while_loop(lambda u: (u * u).sum() < 40, lambda u: u + 1, g),
    "the largest alone": lambda x, g: jnp.where(x * g == (x * g).max(), g, 0),
    "until cotangents are large": lambda x, g: lax.while_loop(lambda u: u.sum() < 5, lambda u: u + 1, g),
    "a condition that hardly any numbers meet": lambda x, g: lax.cond(
        (g * x).sum() > 1e6, lambda u: 2 * u, lambda u: u, g
    ),
    "what is no number, by a condition": lambda x, g: lax.cond(jnp.isnan(g * x).any(), jnp.zeros_like, lambda u: u, g),
    "a loop that hardly ever begins": lambda x, g: lax.while_loop(
        lambda u: jnp.sqrt((u * x * u * x).sum()) < 0.01, lambda u: 2 * u + 1, g
    ),
    "a place": lambda x, g: g.at[5].set(0),
    "a place and something of nothing": lambda x, g: (g + 1).at[5].set(0),
    "what is clipped together": lambda x, g: g / jnp.maximum(1, jnp.abs(x * g).sum()),
}
RIGHT: dict[str, Slopes] = {
    "clipped": lambda x, g: jnp.clip(g, -0.5, 0.5),
    "of each alone": lambda x, g: jnp.where(x > 0, g, 0.1 * g),
    "a loop of some turns": lambda x, g: lax.fori_loop(0, 3, lambda _, u: 2 * u, g),
    "something of nothing": lambda x, g: g + x,
    "a loop for each": lambda x, g: jax.vmap(halved)(g),
    "a loop for each in its turn": lambda x, g: lax.map(halved, g),
    "a loop that changes nothing in a turn more": lambda x, g: lax.while_loop(
        lambda u: (abs(u) > 1).any(), lambda u: jnp.where(abs(u) > 1, u / 2, u), g
    ),
    "what solves an equation, until all are found": lambda x, g: lax.while_loop(
        lambda held: (abs(held[0] - held[1]).max() > 1e-6 * abs(g).max()) & (held[2] < 99),
        lambda held: (g + 0.3 * jnp.tanh(x) * held[0], held[0], held[2] + 1),
        (g, 0 * g - 1, 0),
    )[0],
}


def halved(v: Any) -> Any:
    return lax.while_loop(lambda u: abs(u) > 1, lambda u: u / 2, v)


def written(slopes: Slopes) -> Callable[[Any], Any]:
    @jax.custom_vjp
    def run(x: Any) -> Any:
        return jnp.sin(x)

    run.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (slopes(x, g),))
    return run


def derived(slopes: Slopes, kind: str, plan: str) -> tuple[Any, Any]:
    run, (devices, entry) = written(slopes), PLANS[plan]
    arrow: Any = tp.Map(run, "n -> n")
    if kind == "fold":
        arrow = tp.Reduce(lambda x: run(x).sum(0), "n -> ", tp.monoids.Sum)
    planned = tp.plan(tp.trace(arrow, X), tp.mesh(d=devices), {"n": entry}).compile()
    weights = np.cos(1 + np.arange(LENGTH)).astype(np.float32) if kind == "map" else np.float32(0.7)
    return tuple(in_numpy(jax.grad(lambda x, f=f: (f(x) * weights).sum())) for f in (planned, arrow))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("kind", SIGNATURES)
@pytest.mark.parametrize("name", WRONG)
def test_slopes_that_are_false_of_boxes_are_refused(name: str, kind: str, plan: str) -> None:
    planned, _ = derived(WRONG[name], kind, plan)
    with pytest.raises(tp.PlanError, match="somebody wrote it, and it is false of parts"):
        planned(X)


# Of a fold all cotangents are the same.
OF_MAPS: dict[str, Slopes] = {
    "the largest alone": lambda x, g: jnp.where(g == g.max(), g, 0),
    "until hardly any are large": lambda x, g: lax.while_loop(lambda u: (u * u).min() > 1e4, lambda u: u / 2, g),
    "as often as they say": lambda x, g: lax.fori_loop(0, (g.max() - 3).astype(int), lambda _, u: u / 2, g),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", OF_MAPS)
def test_what_cotangents_choose_together_is_refused_of_maps(name: str, plan: str) -> None:
    planned, _ = derived(OF_MAPS[name], "map", plan)
    with pytest.raises(tp.PlanError, match="somebody wrote it, and it is false of parts"):
        planned(X)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("kind", SIGNATURES)
@pytest.mark.parametrize("name", RIGHT)
def test_slopes_that_are_true_of_boxes_are_taken(name: str, kind: str, plan: str) -> None:
    planned, arrow = derived(RIGHT[name], kind, plan)
    np.testing.assert_allclose(planned(X), arrow(X), rtol=1e-4, atol=1e-5)


SHARED: dict[str, tuple[Slopes, bool]] = {
    "by a sum over what is cut": (
        lambda rows, g: lax.cond((g * rows[0][:, 0]).sum() > 1e6, twice, once, g @ rows[0]),
        True,
    ),
    "by what is not cut": (lambda rows, g: lax.cond(rows[1].sum() > 0, once, once, g @ rows[0]), False),
}


def once(u: Any) -> Any:
    return u


def twice(u: Any) -> Any:
    return 2 * u


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", SHARED)
def test_slopes_of_what_is_shared_are_not_chosen_by_what_is_cut(name: str, plan: str) -> None:
    slopes, is_false = SHARED[name]

    @jax.custom_vjp
    def run(x: Any, w: Any) -> Any:
        return x @ w

    run.defvjp(lambda x, w: (x @ w, (x, w)), lambda rows, g: (g[:, None] * rows[1], slopes(rows, g)))
    devices, entry = PLANS[plan]
    x, w = np.outer(X, [1, 2, 3]).astype(np.float32), np.arange(1.0, 4, dtype=np.float32)
    arrow = tp.Map(run, "n [c], [c] -> n")
    planned = tp.plan(tp.trace(arrow, x, w), tp.mesh(d=devices), {"n": entry}).compile()
    gradient = in_numpy(jax.grad(lambda w: planned(x, w).sum()))
    if is_false:
        with pytest.raises(tp.PlanError, match="it chooses by cells of `n` together"):
            gradient(w)
    else:
        np.testing.assert_allclose(gradient(w), x.sum(0), rtol=1e-5)


@pytest.mark.parametrize("plan", PLANS)
def test_a_derivative_may_choose_by_where_its_cells_lie(plan: str) -> None:
    @jax.custom_vjp
    def run(x: Any, at: Any) -> Any:
        return x * 1.0

    def backward(at: Any, g: Any) -> Any:
        # A block of which none lies behind the fourth skips what would change nothing.
        return lax.cond(at[-1] > 3, lambda u: jnp.where(at > 3, 2 * u, u), lambda u: u, g), None

    run.defvjp(lambda x, at: (x * 1.0, at), backward)
    devices, entry = PLANS[plan]
    arrow = tp.Map(run, "n, @n -> n")
    planned = tp.plan(tp.trace(arrow, X), tp.mesh(d=devices), {"n": entry}).compile()
    gradients = [in_numpy(jax.grad(lambda x, f=f: f(x).sum()))(X) for f in (planned, arrow)]
    np.testing.assert_allclose(*gradients)
