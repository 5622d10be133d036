"""Infinities in scans and folds that are cut: the first piece is not merged with an identity, since inf * 0 is NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.merging import blocks
from combinators.numerics import row_scan
from combinators.numerics.sliding import fold_windows
from tests.damaged import damaged
from tests.simulated.sampled import computed

INF = np.inf
DECAYS = np.array([INF, 0.5, 2, 0.25, INF, 0.5, 0.5, 2], np.float32)
INPUTS = np.arange(1, 9, dtype=np.float32)
PLANS: dict[str, Any] = {
    "two": (2, {"t": "data"}),
    "four": (4, {"t": "data"}),
    "chunks": (1, {"t": tp.chunks(4)}),
    "both": (2, {"t": ("data", tp.chunks(2))}),
}
DIRECTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "forwards": (tp.monoids.AffineRecurrence, {}),
    "backwards": (tp.monoids.dual(tp.monoids.AffineRecurrence), {"reverse": True}),
    "exclusive": (tp.monoids.AffineRecurrence, {"exclusive": True}),
}


def pair(a: Any, b: Any) -> Any:
    return a, b


def second(state: Any) -> Any:
    return state[1]


def sequential(a: Any, b: Any, direction: str) -> Any:
    """One step after the other, begun with the first step."""
    if direction == "backwards":
        return sequential(a[::-1], b[::-1], "forwards")[::-1]
    found = [b[0]]
    for decay, added in zip(a[1:], b[1:], strict=True):
        found.append(decay * found[-1] + added)
    return np.array([0, *found[:-1]] if direction == "exclusive" else found)


def planned(program: Any, plan: str, *args: Any) -> Any:
    devices, entries = PLANS[plan]
    return tp.plan(tp.trace(program, *args), tp.mesh(data=devices), entries).compile()


# Four devices and all in chunks say no more than two devices with chunks of their own, where all have the same steps.
@pytest.mark.parametrize(
    ("plan", "size"),
    [
        *(("four", 5), ("both", 5)),
        *(pytest.param(plan, 8, marks=pytest.mark.thorough) for plan in ("both", "four", "two")),
        pytest.param("two", 5, marks=pytest.mark.thorough),
        *(pytest.param("chunks", size, marks=pytest.mark.thorough) for size in (5, 8)),
    ],
)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_an_infinite_decay_forgets_nothing_that_is_not_there(plan: str, direction: str, size: int) -> None:
    monoid, how = DIRECTIONS[direction]
    scan = tp.Scan(monoid, "t, t -> t", over="t", kernel=pair, present=second, **how)
    a, b = (DECAYS[::-1], INPUTS[::-1]) if direction == "backwards" else (DECAYS, INPUTS)
    # Five steps on four devices leave one without any, and one with half of a block.
    a, b = (a[-size:], b[-size:]) if direction == "backwards" else (a[:size], b[:size])
    np.testing.assert_array_equal(planned(scan, plan, a, b)(a, b), sequential(a, b, direction))


@pytest.mark.parametrize("plan", ["four", "both"])
def test_an_infinite_decay_has_the_gradient_of_the_unplanned_scan(plan: str) -> None:
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t, t -> t", over="t", kernel=pair, present=second)
    a = np.array([INF, *DECAYS[1:4], 1, 0.5, 0.5, 2], np.float32)
    run = planned(scan, plan, a, INPUTS)
    wanted, found = (computed(jax.grad(lambda *x, f=f: jnp.sum(f(*x)), (0, 1)), a, INPUTS) for f in (scan, run))
    for one, other in zip(found, wanted, strict=True):
        # What a tree multiplies has slopes of inf * 0, with and without a plan: a plan has no more of them.
        known = np.isfinite(other)
        assert known.sum() >= 5
        np.testing.assert_allclose(np.asarray(one)[known], np.asarray(other)[known])


def test_many_steps_in_rows_begin_with_the_first() -> None:
    size = row_scan.ROWS.least + 7
    a = np.where(np.arange(size) % 100 == 0, INF, 0.5).astype(np.float32)
    b = np.ones(size, np.float32)
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t, t -> t", over="t", kernel=pair, present=second)
    found = np.asarray(jax.jit(scan)(a, b))
    wanted = sequential(a, b, "forwards")
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert found[0] == 1 and not np.isnan(found).any()


def matrices(count: int) -> Any:
    """Of positive entries: nothing but the unit matrix has the zeros that make inf * 0."""
    found = np.ones((count, 2, 2), np.float32)
    found[0, 0], found[-1, :, 1] = INF, INF
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_products_of_infinite_matrices_agree(plan: str) -> None:
    fold = tp.Reduce(tp.monoids.MatrixProduct.fold_stacked, "t [i] [j] -> [i] [j]", tp.monoids.MatrixProduct)
    states = matrices(8)
    wanted = fold(states)
    assert not np.isnan(wanted).any()
    np.testing.assert_array_equal(planned(fold, plan, states)(states), wanted)


def test_windows_that_are_a_block_are_merged_with_nothing() -> None:
    states = matrices(4)
    found = fold_windows(tp.monoids.MatrixProduct, states, 2)
    np.testing.assert_array_equal(found, jnp.matmul(states[:-1], states[1:]))


def test_a_merge_with_the_identity_is_seen() -> None:
    """The fault of before: what is chosen here was merged."""
    with damaged(blocks.merge_behind, "jnp.where(both, leaf, other)", "leaf"), pytest.raises(AssertionError):
        test_an_infinite_decay_forgets_nothing_that_is_not_there("two", "forwards", 8)


TIED = np.array([1, 3, 3, 2, 3, 1, 3], np.float32)


@pytest.mark.parametrize(
    "how",
    [pytest.param({}, marks=pytest.mark.thorough), {"reverse": True}, {"exclusive": True}],
    ids=["all", "reverse", "exclusive"],
)
@pytest.mark.parametrize("plan", [pytest.param("four", marks=pytest.mark.thorough), "both"])
def test_the_first_of_equal_maxima_has_the_gradient_however_a_scan_is_cut(plan: str, how: dict[str, Any]) -> None:
    scan = tp.Scan(tp.monoids.Max, "t -> t", over="t", **how)
    run = planned(scan, plan, TIED)

    def slopes(function: Any) -> Any:
        cotangent = jnp.arange(1, 8, dtype=jnp.float32)
        return computed(lambda x: jax.vjp(function, x)[1](cotangent)[0], TIED)

    wanted = slopes(scan)
    np.testing.assert_array_equal(slopes(run), wanted)
    if not how:
        np.testing.assert_array_equal(wanted, [1, 27, 0, 0, 0, 0, 0])
