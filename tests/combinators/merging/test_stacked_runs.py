"""Folds of runs of states: those of a loop over each run, and slopes that know nothing of what no run is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import monoids
from combinators.merging.stacked_runs import stacked_runs
from combinators.monoids.segmented import segmented
from tests.damaged import damaged
from tests.simulated.sampled import in_numpy

AFFINE = monoids.AffineRecurrence
PRODUCT = monoids.Prod


def drawn(size: int, spread: int) -> Any:
    """Some runs of a few and some of up to `spread` states."""
    rng = np.random.default_rng(size)
    return rng.random(size) < 1 - 1 / rng.choice([2, spread], size)


def looped(joins: Any, states: Any) -> tuple[Any, Any]:
    """Where runs end, and the fold of each in NumPy."""
    ends = np.append(~joins[1:], True)
    a, b = np.array(states[0]), np.array(states[1])
    for t in range(1, len(joins)):
        if joins[t]:
            a[t], b[t] = a[t] * a[t - 1], a[t] * b[t - 1] + b[t]
    return ends, (a, b)


@pytest.mark.parametrize(
    "size", [1, 33, 1100, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 8, 31, 32, 64, 65, 300, 1024))]
)
def test_folds_of_runs_are_those_of_a_loop(size: int) -> None:
    states = np.random.default_rng(size).uniform(0.5, 1, (2, size, 2)).astype(np.float32)
    run = in_numpy(lambda joins, a, b: stacked_runs(AFFINE, joins, (a, b)))
    for spread in (3, 40, 2000):
        joins = drawn(size, spread)
        got = run(joins, *states)
        ends, wanted = looped(joins, states)
        jax.tree.map(
            lambda a, b, ends=ends: np.testing.assert_allclose(a[ends], b[ends], rtol=1e-4, atol=1e-30), got, wanted
        )


def slopes(size: int, spread: int) -> None:
    """Each slope of a product is the product of the others, NaN or not."""
    rng = np.random.default_rng(size + spread)
    joins, x = drawn(size, spread), rng.choice([1.0, 1.0, 1.0, -1.0, 0.0, np.inf], size)
    joins[0] = False
    ends = np.append(~joins[1:], True)
    found = in_numpy(jax.grad(lambda x: jnp.sum(jnp.where(ends, stacked_runs(PRODUCT, jnp.asarray(joins), x), 0.0))))(x)
    runs = np.cumsum(~joins)
    with np.errstate(invalid="ignore"):
        wanted = [np.prod(x[(runs == runs[t]) & (np.arange(size) != t)]) for t in range(size)]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("size", [200, *(pytest.param(n, marks=pytest.mark.thorough) for n in (3, 32, 40, 64, 1100))])
def test_slopes_of_a_product_are_the_products_of_the_others_in_its_run(size: int) -> None:
    slopes(size, 4)


@pytest.mark.thorough
def test_long_runs_have_the_slopes_of_theirs() -> None:
    for size, spread in ((70, 20), (300, 50), (1100, 400)):
        slopes(size, spread)


@pytest.mark.parametrize(
    ("sound", "harm"), [("(joins & leaves)[:, 1:]", "joins[:, 1:]"), ("joins & ~leaves", "joins")], ids=["end", "step"]
)
def test_states_that_are_merged_and_dropped_are_seen(sound: str, harm: str) -> None:
    with damaged(stacked_runs, sound, harm), pytest.raises(AssertionError):
        slopes(200, 4)


def test_runs_are_the_segments_of_flags() -> None:
    joins, x = drawn(37, 5), np.arange(37) % 5 + 1.0
    _, prefixes = jax.lax.associative_scan(jax.vmap(segmented(PRODUCT).merge), (jnp.asarray(~joins), jnp.asarray(x)))
    ends = np.append(~joins[1:], True)
    np.testing.assert_allclose(stacked_runs(PRODUCT, jnp.asarray(joins), jnp.asarray(x))[ends], prefixes[ends])
