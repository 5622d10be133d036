"""Where elements tie the slopes of what is lifted are the same under every plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp

X = np.random.default_rng(0).integers(0, 3, (8, 6)).astype("f4")
LABELS = np.array([0, 2, 1, 1, 0, 2, 2, 0])
PLANS: list[dict[str, Any]] = [
    {},
    {"r": "a"},
    {"c": "a"},
    {"r": tp.chunks(3)},
    {"r": ("a", tp.chunks(2))},
    {"r": tp.striped("a")},
]
SHARED: dict[str, Callable[[Any], Any]] = {
    "folded": lambda x: x.max(0),
    "of some": lambda x: jnp.max(x, 0, where=x < 2, initial=-5.0),
    "beside a constant": lambda x: jnp.max(x, 0, initial=2.0),
    "in windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (1, 1), "VALID"),
    "by label": lambda x: jax.ops.segment_max(x, LABELS, 3),
    "sorted": lambda x: lax.top_k(x.T, 3)[0],
}
"""What JAX's own slopes are kept of."""
FIRST: dict[str, Callable[[Any], Any]] = {
    "cummax": lambda x: lax.cummax(x, 0),
    "cummin": lambda x: lax.cummin(x, 0),
    "cummax from the end": lambda x: lax.cummax(x, 0, reverse=True),
    "by an associative function": lambda x: lax.associative_scan(jnp.maximum, x),
    "by one from the end": lambda x: lax.associative_scan(jnp.minimum, x, reverse=True),
}
"""Prefixes: the first element has the slope."""


def slopes(function: Callable[[Any], Any]) -> Any:
    weights = np.random.default_rng(1).standard_normal(jax.eval_shape(function, X).shape).astype("f4")
    return jax.grad(lambda x: (function(x) * weights).sum())(X)


def planned(graph: Any, mesh: Any) -> list[Any]:
    """The compiled plans that take it."""
    found: list[Any] = []
    for entries in PLANS:
        try:
            found.append(tp.plan(graph, mesh, entries).compile())
        except tp.PlanError:
            continue
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("name", SHARED)
def test_slopes_at_ties_are_those_of_jax_under_every_plan(name: str) -> None:
    graph = tp.lift(SHARED[name], X, names={"x": ("r", "c")})
    for run in (graph, *planned(graph, tp.mesh(a=2))):
        np.testing.assert_allclose(slopes(run), slopes(SHARED[name]), rtol=1e-5, atol=1e-6)


def first_alone(name: str) -> Any:
    """The slopes if each prefix is the first of its elements that attains it, in NumPy."""
    value = np.asarray(FIRST[name](X))
    weights = np.random.default_rng(1).standard_normal(value.shape).astype("f4")
    found = np.zeros_like(X)
    for row, column in np.ndindex(*value.shape):
        rows = range(row, len(X)) if "end" in name else range(row + 1)
        first = next(at for at in rows if X[at, column] == value[row, column])
        found[first, column] += weights[row, column]
    return found


@pytest.mark.parametrize("name", FIRST)
def test_the_first_of_a_prefix_has_its_slope_under_every_plan(name: str) -> None:
    graph = tp.lift(FIRST[name], X, names={"x": ("r", "c")})
    for run in (graph, *planned(graph, tp.mesh(a=2))):
        np.testing.assert_array_equal(run(X), FIRST[name](X))
        np.testing.assert_allclose(slopes(run), first_alone(name), rtol=1e-5, atol=1e-6)
