"""What is taken in turns is carried in float32 where it is narrower, unless somebody says otherwise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.graphs.walk import operations

agg = tp.aggregators
NARROW = [jnp.bfloat16, jnp.float16]
total = tp.fold(agg.Sum(), "row c -> c")
running = tp.scan(agg.Sum(), "row c -> row c", over="row")


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("entries", [{"row": tp.chunks(300)}, {"row": ("data", tp.chunks(60))}])
def test_sums_grow_over_any_number_of_turns(mesh2x4: Any, dtype: Any, entries: Any) -> None:
    ones = jnp.ones((3000, 1), dtype)
    for program, last in ((total, lambda out: out), (running, lambda out: out[-1])):
        plan = tp.plan(tp.trace(program, ones), mesh2x4, entries)
        plan.verify()
        assert last(plan.compile()(ones)).tolist() == total(ones).tolist()
        assert last(plan.shards().run(ones)).tolist() == total(ones).tolist()


def test_a_gradient_is_that_of_the_program(mesh2x4: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((64, 3)), jnp.bfloat16)
    run = tp.plan(tp.trace(total, x), mesh2x4, {"row": ("data", tp.chunks(8))}).compile()

    def loss(function: Any) -> Any:
        return jax.grad(lambda x: (function(x).astype(jnp.float32) ** 2).sum())(x)

    np.testing.assert_allclose(
        np.asarray(loss(run), np.float32), np.asarray(loss(lambda x: x.sum(0)), np.float32), rtol=2e-2
    )


@pytest.mark.parametrize("entries", [{"n": tp.chunks(1000)}, {"n": ("data", tp.chunks(500))}])
def test_so_does_the_gradient_of_what_turns_share(mesh2x4: Any, entries: Any) -> None:
    scaled, loss = tp.Map(lambda x, w: x * w, "n k, k -> n k"), tp.fold(agg.Sum(), "n k -> ")
    x, w = jnp.ones((3000, 1), jnp.bfloat16), jnp.ones(1, jnp.bfloat16)
    graph = tp.trace(lambda x, w: loss(scaled(x, w)), x, w)
    run = tp.plan(graph, mesh2x4, entries).compile()
    slopes = [jax.grad(lambda w, f=f: f(x, w).astype(jnp.float32))(w).tolist() for f in (graph, run)]
    assert slopes == [[3008.0], [3008.0]]


def carriers(graph: tp.Graph, mesh: Any, entries: Any, **asked: Any) -> set[str]:
    plan = tp.plan(graph, mesh, entries, **asked)
    assert tp.Plan.from_json(plan.to_json(), graph).to_json() == plan.to_json()
    places = (place for place, node in operations(plan.schedule.graph) if node.operation.monoid is not None)
    return {leaf.dtype.name for place in places for leaf in place.graph.shaped(place.index).state}


def test_nothing_else_is_carried_in_another_dtype(mesh2x4: Any) -> None:
    x = jnp.ones((8, 4), jnp.bfloat16)
    chunks, graph = {"row": tp.chunks(2)}, tp.trace(total, x)
    assert carriers(graph, mesh2x4, chunks) == {"float32"}
    assert carriers(graph, mesh2x4, chunks, accumulate={"": None}) == {"bfloat16"}
    assert carriers(graph, mesh2x4, chunks, ops={"Sum": {"row": None}}) == {"bfloat16"}
    assert carriers(graph, mesh2x4, {"row": "data"}) == {"bfloat16"}
    assert carriers(graph, mesh2x4, {"c": tp.chunks(2)}) == {"bfloat16"}
    assert carriers(tp.trace(tp.fold(agg.Max(), "row c -> c"), x), mesh2x4, chunks) == {"bfloat16"}
    assert carriers(tp.trace(total, x.astype(jnp.float32)), mesh2x4, chunks) == {"float32"}
