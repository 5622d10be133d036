"""Random bits that a kernel draws itself: keys of Threefry draw alone, those of `rbg` for all that are beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp

SEEDS = np.arange(12, dtype=np.int32)
PLANS = {"devices": (2, "d"), "chunks": (1, tp.chunks(3))}

Keyed = Callable[[Any], Any]
"""From a seed to its key."""


def keyed(impl: str) -> Keyed:
    return lambda seed: jax.random.key(seed, impl=impl)


def folded_in(key: Keyed) -> Any:
    return jax.vmap(lambda seed: jax.random.normal(jax.random.fold_in(key(7), seed)))


# All of them draw for many keys at once.
TOGETHER: dict[str, Callable[[Keyed], Any]] = {
    "numbers": lambda key: tp.Map(jax.vmap(lambda seed: jax.random.uniform(key(seed))), "row -> row"),
    "vectors": lambda key: tp.Map(
        jax.vmap(lambda seed: jax.random.normal(key(seed), (3,))), "row -> row [f]", sizes={"f": 3}
    ),
    "of one key": lambda key: tp.Map(folded_in(key), "row -> row"),
    "what an aggregator takes": lambda key: tp.fold(
        tp.aggregators.Sum().contramap(lambda seed: jax.random.normal(key(seed))), "row -> "
    ),
}


def planned(arrow: Any, plan: str) -> Any:
    devices, entry = PLANS[plan]
    return tp.plan(tp.trace(arrow, SEEDS), tp.mesh(d=devices), {"row": entry}).compile()(SEEDS)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", TOGETHER)
def test_bits_of_keys_that_draw_alone_are_the_same_in_any_plan(name: str, plan: str) -> None:
    arrow = TOGETHER[name](keyed("threefry2x32"))
    np.testing.assert_allclose(planned(arrow, plan), arrow(SEEDS), rtol=1e-5)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_bits_that_are_drawn_for_all_at_once_are_refused(impl: str, name: str, plan: str) -> None:
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        planned(TOGETHER[name](keyed(impl)), plan)


@pytest.mark.parametrize("plan", PLANS)
def test_a_loop_draws_of_one_key_after_the_other(plan: str) -> None:
    arrow = tp.Map(lambda seeds: lax.map(lambda seed: jax.random.uniform(keyed("rbg")(seed)), seeds), "row -> row")
    np.testing.assert_allclose(planned(arrow, plan), arrow(SEEDS), rtol=1e-6)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_bits_of_one_key_for_all_rows_are_by_their_places(impl: str) -> None:
    def noisy(x: Any) -> Any:
        return x + jax.random.normal(jax.random.key(0, impl=impl), x.shape)

    with pytest.raises(tp.SignatureError, match="it uses the position in the block along `row`"):
        tp.trace(tp.Map(noisy, "row -> row"), np.ones(12, np.float32))
