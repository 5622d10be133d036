"""Loops until a condition inside of stages: each stage takes its own turns, so nothing is sent in them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from combinators import PlanError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 8)).astype(np.float32)
# Layers that take 0 to 50 turns.
W = RNG.normal(size=(2, 8, 8)).astype(np.float32) * np.array([0.01, 10], np.float32)[:, None, None]
SQUARE, MATMUL = tp.einsum("i j, i j -> "), tp.einsum("b i, i j -> b j")


def solved(step: Any, **options: Any) -> Any:
    """Layers that shrink their weights until these are small."""

    def layer(x: Any, w: Any) -> Any:
        found = tp.iterate(step, until=lambda w: SQUARE(w, w) < 0.1, at_most=60, **options)(w)
        return x + MATMUL(x, found.state).rename(j="i")

    return tp.program("b i, layer i j -> b i")(lambda x, w: tp.stack(layer, 2)(x, w))


def blurred(w: Any) -> Any:
    return tp.stencil(lambda u: (u[-1] + u[0] + u[1]) / 4, {"i": (-1, 1)})(w)


def halved(w: Any) -> Any:
    return w / 2


STAGES = {"layer": "stage", "b": tp.chunks(2)}


def planned(step: Any, entries: Any, **options: Any) -> Any:
    return tp.plan(tp.trace(solved(step, **options), X, W), tp.mesh(stage=2, data=4), entries)


def test_turns_of_stages_differ_where_nothing_is_sent() -> None:
    plan = planned(blurred, STAGES)
    plan.verify()
    np.testing.assert_allclose(plan.compile()(*plan.put(X, W)), solved(blurred)(X, W), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("step", "sent"),
    [
        (blurred, "collective-permute over data for `stack/iterate/lambda`"),
        (halved, "all-reduce over data for `stack/iterate/einsum`"),
    ],
)
def test_turns_of_stages_that_send_are_refused(step: Any, sent: str) -> None:
    """A ring of rims hung: its permutation is one of all devices, and the first stage had left the loop."""
    with pytest.raises(PlanError) as caught:
        planned(step, STAGES | {"i": "data"})
    head, told, remedy = str(caught.value).splitlines()
    assert head == (
        "`stack/iterate` ends when a condition holds, in stages along stage after different turns, and sends in them"
    )
    assert told.strip() == sent
    assert remedy.strip().startswith("Leave what the loop reads whole on every stage")


def test_turns_of_stages_that_are_counted_may_send() -> None:
    plan = planned(blurred, STAGES | {"i": "data"}, derivative="unrolled")
    wanted = jax.jit(solved(blurred, derivative="unrolled"))(X, W)
    np.testing.assert_allclose(plan.compile()(*plan.put(X, W)), wanted, rtol=1e-4, atol=1e-5)
