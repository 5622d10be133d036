"""Slopes beside an infinity in a run that is dropped, by another run or by a greater key: zeros, wherever a plan cuts.

A loss that leaves out what is not finite sends exact zeros to it. Of what is left each slope is the product of the
other elements of its run, in NumPy.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.simulated.sampled import in_numpy

agg = tp.aggregators
RUNS = np.array([4, 4, 4, 7, 7, 7, 7, 4, 4], np.int32)
BEGINS = np.concatenate([[True], RUNS[1:] != RUNS[:-1]])
COUNT = len(RUNS)
PLANS = {
    "devices": (4, "m"),
    "chunks": (1, tp.chunks(4)),
    "one by one": (1, tp.chunks(COUNT)),
    "chunks on devices": (2, ("m", tp.chunks(3))),
    "no plan": None,
}
SELECTED = {"runs": (agg.Prod().by_run(), RUNS), "segments": (agg.Prod().segmented(), BEGINS)}
WAYS = {"last": None, "forwards": {}, "from the end": {"reverse": True}, "before": {"exclusive": True}}


def members(way: str) -> list[list[int]]:
    """Which elements each result is the product of."""
    number = np.cumsum(BEGINS)
    same = [[s for s in range(COUNT) if number[s] == number[t]] for t in range(COUNT)]
    if way == "last":
        return same[-1:]
    if way == "from the end":
        # A fold of what is left from there on: of the last run.
        return [[s for s in same[-1] if s >= t] for t in range(COUNT)]
    upto = [[s for s in same[t] if s <= t] for t in range(COUNT)]
    # Before an element lies the run of the one before it.
    return [[], *upto[:-1]] if way == "before" else upto


def expected(way: str, x: Any) -> list[float]:
    slopes = np.zeros(COUNT)
    for chosen in members(way):
        if np.isfinite(x[chosen]).all():
            for s in chosen:
                slopes[s] += np.prod(x[[t for t in chosen if t != s]])
    return slopes.tolist()


def loss(run: Any, *labels: Any) -> Any:
    def of(x: Any) -> Any:
        made = run(x, *labels)
        return jnp.sum(jnp.where(jnp.isfinite(made), made, 0))

    return of


def planned(arrow: Any, plan: Any, *args: Any) -> Any:
    if plan is None:
        return arrow
    devices, entry = plan
    return tp.plan(tp.trace(arrow, *args), tp.mesh(m=devices), {"x": entry}).compile()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("selected", SELECTED)
@pytest.mark.parametrize("way", WAYS)
def test_no_slope_comes_back_from_a_run_that_is_dropped(selected: str, way: str, plan: str) -> None:
    aggregator, labels = SELECTED[selected]
    options = WAYS[way]
    arrow = tp.fold(aggregator, "x, x -> ") if options is None else tp.scan(aggregator, "x, x -> x", "x", **options)
    x = np.array([2, 3, 4, 5, 0.5, 3, 2, 7, 0.25], np.float32)
    run = planned(arrow, PLANS[plan], x, labels)
    slopes = in_numpy(jax.grad(loss(run, labels)))
    for at in (0, 1, 2, 3, 4, 6, 8):
        x = np.array([2, 3, 4, 5, 0.5, 3, 2, 7, 0.25], np.float32)
        x[at] = np.inf
        np.testing.assert_allclose(slopes(x), expected(way, x), rtol=1e-6, err_msg=f"infinite at {at}")


@pytest.mark.parametrize("plan", PLANS)
def test_no_slope_comes_back_from_what_lies_at_a_lesser_key(plan: str) -> None:
    keys = np.array([1, 1, 0, 2, 2, 3, 3, 3, 2], np.float32)
    order = tp.monoids.lexicographic(tp.monoids.Max, tp.monoids.Prod)
    arrow = tp.fold(tp.Aggregator(lambda key, x: (key, x), order, lambda state: state[1]), "x, x -> ")
    x = np.array([2, np.inf, 3, 5, np.inf, 3, 2, 7, 0.25], np.float32)
    run = planned(arrow, PLANS[plan], keys, x)
    found = in_numpy(jax.grad(lambda x: run(keys, x)))(x)
    assert np.asarray(found).tolist() == [0, 0, 0, 0, 0, 14, 21, 6, 0]


@pytest.mark.parametrize("plan", ["devices", "chunks"])
def test_second_derivatives_are_those_without_a_plan(plan: str) -> None:
    arrow = tp.scan((agg.Prod() & agg.Sum()).by_run(), "x, x -> x", "x")
    x = np.array([2, 3, 0, 5, 0.5, 3, 0, 7, 0.25], np.float32)

    def of(run: Any) -> Any:
        return lambda x: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(run(x, RUNS)))

    found = in_numpy(jax.hessian(of(planned(arrow, PLANS[plan], x, RUNS))))(x)
    np.testing.assert_allclose(found, in_numpy(jax.hessian(of(arrow)))(x), rtol=1e-5, atol=1e-4)
