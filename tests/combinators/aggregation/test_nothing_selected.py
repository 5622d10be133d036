"""What masks, keys and windows leave out is not merged in the place of nothing: beside an infinity 0 would be NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators import aggregators, monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.monoids import held as holding
from tests.damaged import damaged
from tests.simulated.sampled import in_numpy
from tests.thoroughly import but

INF = np.inf
SIZE, KEYS = 11, 3
MASK = np.array([1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1], bool)
LABELS = np.array([1, -1, 0, 2, 1, 1, 0, 5, 1, 0, 1], np.int32)
SORTED = np.sort(LABELS)
LAST = np.arange(SIZE) >= 8
"""The last segment where one begins at 8."""


def of_both(a: Any, b: Any) -> Any:
    return b, (a, b)


BOTH = Aggregator(of_both, monoids.Sum & monoids.AffineRecurrence, lambda state: (state[0], state[1][1]), name="Both")
"""A product, of which one part has an identity that makes NaN."""


def in_turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The recurrence in NumPy; it begins with the first step, and not with a step from 0."""
    found = np.zeros(b.shape[1:]) if not len(b) else b[0].astype(np.float64)
    for decay, step in zip(a[1:], b[1:], strict=True):
        found = (decay @ found if decay.ndim else decay * found) + step
    return found


LOOPS: dict[str, Any] = {
    "matrices": lambda x: aggregators.MatrixProduct().reference(x),  # pyright: ignore[reportOptionalCall]
    "recurrence": in_turn,
    "dense": in_turn,
    "product": lambda a, b: (np.sum(b, 0), in_turn(a, b)),
}
KINDS: dict[str, tuple[Aggregator, tuple[tuple[int, ...], ...], tuple[str, ...]]] = {
    "matrices": (aggregators.MatrixProduct(), ((2, 2),), ("t [i] [j]",)),
    "recurrence": (aggregators.Recurrence(), ((), ()), ("t", "t")),
    "dense": (aggregators.Recurrence(dense=True), ((2, 2), (2,)), ("t [i] [j]", "t [i]")),
    "product": (BOTH, ((), ()), ("t", "t")),
}


def numbers(name: str, at: int | None = None) -> list[np.ndarray]:
    """Positive ones, so that an infinity stays one in every order; whole and few, so that products are exact."""
    rng = np.random.default_rng(3)
    drawn = [rng.integers(1, 3, (SIZE, *shape)).astype(np.float32) for shape in KINDS[name][1]]
    if at is not None:
        drawn[0][at] = INF
    return drawn


NONE = np.zeros(SIZE, bool)
WAYS: dict[str, tuple[Any, tuple[np.ndarray, ...], Any]] = {
    "masked": (lambda kind: kind.masked(), (MASK,), MASK),
    "nothing": (lambda kind: kind.masked(), (NONE,), NONE),
    "keys": (lambda kind: kind.by_key(None, KEYS), (LABELS,), [key == LABELS for key in range(KEYS)]),
    "segments": (lambda kind: kind.by_segment(None, KEYS), (SORTED,), [key == SORTED for key in range(KEYS)]),
    "last": (lambda kind: kind.segmented(), (np.arange(SIZE) == 8,), np.arange(SIZE) >= 8),
    "keys of masked": (
        lambda kind: kind.masked().by_key(None, KEYS),
        (MASK, LABELS),
        [(key == LABELS) & MASK for key in range(KEYS)],
    ),
    "masked keys": (
        lambda kind: kind.by_key(None, KEYS).masked(),
        (LABELS, MASK),
        [(key == LABELS) & MASK for key in range(KEYS)],
    ),
}
"""How is selected, by what, and what comes of it: which elements, or which ones by key."""


def looped(name: str, way: str, xs: list[np.ndarray]) -> Any:
    """What a loop over the elements that are selected gives."""
    rows = WAYS[way][2]
    if isinstance(rows, np.ndarray):
        return LOOPS[name](*(x[rows] for x in xs))
    return jax.tree.map(lambda *found: np.stack(found), *(LOOPS[name](*(x[of] for x in xs)) for of in rows))


def close(found: Any, wanted: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, wanted)


@pytest.mark.parametrize("name", but(KINDS, "matrices", "product"))
def test_what_is_selected_is_what_a_loop_over_it_gives(name: str) -> None:
    run = in_numpy(lambda xs: {way: make(KINDS[name][0]).run(*xs, *given) for way, (make, given, _) in WAYS.items()})
    for at in (None, 0, 5, SIZE - 1):
        xs = numbers(name, at)
        for way, found in run(xs).items():
            close(found, looped(name, way, xs))


def test_what_is_left_out_has_no_slope_and_takes_none() -> None:
    ways = ("masked", "last", "masked keys")

    @jax.jit
    @jax.grad
    def slopes(x: Any) -> Any:
        made = (WAYS[way][0](KINDS["matrices"][0]).run(x, *WAYS[way][1]) for way in ways)
        return sum(map(jnp.sum, made))

    for at in (1, 7):  # of elements that no mask, key or last segment holds
        found = np.asarray(slopes(numbers("matrices", at)[0]))
        assert np.isfinite(found).all() and (found[at] == 0).all() and found.any()


PLANS: dict[str, tuple[str, str, dict[str, int], Any]] = {
    "mask on devices": ("matrices", "masked", {"data": 4}, "data"),
    "mask in chunks": ("recurrence", "masked", {"data": 1}, tp.chunks(3)),
    "keys on devices": ("product", "keys", {"data": 4}, "data"),
    "segments in chunks on devices": ("recurrence", "segments", {"data": 3}, ("data", tp.chunks(2))),
    "last segment": ("matrices", "last", {"data": 4}, "data"),
}


def compare(name: str, at: int = 0) -> None:
    kind, way, sizes, entry = PLANS[name]
    make, given, _ = WAYS[way]
    xs = numbers(kind, at)
    program = tp.fold(make(KINDS[kind][0]), f"{', '.join((*KINDS[kind][2], *['t'] * len(given)))} -> ")
    plan = tp.plan(tp.trace(program, *xs, *given), tp.mesh(**sizes), {"t": entry})
    close(plan.compile()(*xs, *given), looped(kind, way, xs))


@pytest.mark.parametrize("name", PLANS)
def test_plans_merge_nothing_with_what_a_piece_does_not_select(name: str) -> None:
    compare(name, 8 if name == "last segment" else 0)


def test_the_first_windows_are_of_what_there_is() -> None:
    xs = numbers("matrices", 1)[0]
    program = tp.window(aggregators.MatrixProduct(), 4, "t [i] [j] -> t", over="t", partial=True)
    wanted = [LOOPS["matrices"](xs[max(t - 3, 0) : t + 1]) for t in range(SIZE)]
    close(program(xs), np.stack(wanted))


def test_an_identity_that_is_merged_is_seen() -> None:
    with damaged(holding.held, "is_neutral(monoid.combine)", "True"), pytest.raises(AssertionError):
        compare("mask on devices")
