"""Gradients of what the turns of a loss share are added up in float32 where they are narrower."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp

agg = tp.aggregators


@pytest.mark.parametrize("entries", [{"n": tp.chunks(1000)}, {"n": ("data", tp.chunks(500))}])
def test_gradients_grow_over_any_number_of_turns(mesh2x4: Any, entries: Any) -> None:
    scaled, loss = tp.Map(lambda x, w: x * w, "n k, k -> n k"), tp.fold(agg.Sum(), "n k -> ")
    x, w = jnp.ones((3000, 1), jnp.bfloat16), jnp.ones(1, jnp.bfloat16)
    graph = tp.trace(lambda x, w: loss(scaled(x, w)), x, w)
    run = tp.plan(graph, mesh2x4, entries).compile()
    slopes = [jax.grad(lambda w, f=f: f(x, w).astype(jnp.float32))(w).tolist() for f in (graph, run)]
    assert slopes == [[3008.0], [3008.0]]


def test_a_plan_says_none_of_its_folds_wide_and_none_narrow_is_read_again(mesh2x4: Any) -> None:
    graph = tp.trace(tp.fold(agg.Sum(), "row c -> c"), jnp.ones((8, 4), jnp.bfloat16))
    plan = tp.plan(graph, mesh2x4, {"row": tp.chunks(2)}, accumulate={"": None})
    assert tp.Plan.from_json(plan.to_json(), graph).to_json() == plan.to_json()
