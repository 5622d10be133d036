"""What is predicted needs no devices, and says what is sent."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.planning.prediction.collectives import placed_collectives
from tests.pairs.plans import draw_placing, repaired
from tests.pairs.programs import draw_program
from tests.tapestry_jax.draw import named

MESH = AbstractMesh((2, 4), ("data", "model"))
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def test_an_abstract_mesh_predicts_what_a_real_one_does(mesh2x4):
    graph = tp.trace(lambda x, w: matmul(x, w), *named("b e, e f", np.ones((7, 6)), np.ones((6, 8))))
    plans = [tp.plan(graph, mesh, {"e": "model", "b": "data"}) for mesh in (MESH, mesh2x4)]
    assert plans[0].collectives(grad=True) == plans[1].collectives(grad=True)
    assert plans[0].schedule == plans[1].schedule
    plans[0].verify()


def test_collectives_name_kind_axes_bytes_and_operation():
    graph = tp.trace(lambda x, w: matmul(x, w), *named("b e, e f", np.ones((8, 6), "f"), np.ones((6, 5), "f")))
    (found,) = tp.plan(graph, MESH, {"e": "model", "b": "data"}).collectives()
    # Four rows of five float32.
    assert str(found) == "all-reduce over model: 80 B, matmul"


def test_states_that_loops_add_up_may_have_fewer_leaves_than_results():
    best = tp.fold(tp.aggregators.TopK(2), "a b, @a -> b")
    graph = tp.trace(best, tp.TensorType({"a": 16, "b": 4}))
    assert tp.plan(graph, MESH, {"a": tp.chunks(2)}).collectives() == ()
    over_data = [str(each) for each in tp.plan(graph, MESH, {"a": "data"}).collectives()]
    both = tp.plan(graph, MESH, {"a": ("data", tp.chunks(2))}).collectives()
    assert [str(each) for each in both] == over_data


def test_what_is_priced_is_all_that_is_sent_bound_or_not():
    bounds = 0
    for seed in map("priced {}".format, range(8)):
        program = draw_program(seed)
        _, plan, _ = repaired(draw_placing(seed, program.graph, program.dtype), program.graph, seed)
        assert plan is not None
        told = placed_collectives(plan.schedule, True)
        bounds += sum(each.bound for _, each in told)
        sent = placed_collectives(plan.schedule, True, bounds=False)
        assert [(at, replace(each, bound=False)) for at, each in told] == [
            (at, replace(each, bound=False)) for at, each in sent
        ]
    assert bounds
