"""The layouts of inputs and outputs that nobody asks for: as their first user wants them, as they are produced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import tapestry_jax as tp
from tests.tapestry_jax.draw import named

MESH = AbstractMesh((2, 4), ("data", "model"))
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def spec(sharding):
    """The mesh axes of every axis; JAX writes one of them with or without a tuple, by version."""
    return tuple(axes if axes is None or isinstance(axes, tuple) else (axes,) for axes in sharding.spec)


def test_inputs_come_as_their_first_user_wants_them():
    graph = tp.trace(
        lambda x, w, v: matmul(matmul(x, w), v), *named("b e, e f, f g", *map(np.ones, ((4, 6), (6, 8), (8, 2))))
    )
    plan = tp.plan(graph, MESH, {"b": "data", "f": "model"})
    assert [spec(s) for s in plan.in_shardings] == [(("data",), None), (None, ("model",)), (("model",), None)]
    assert spec(plan.out_shardings) == (("data",), None)
    assert plan.in_shardings[0] == NamedSharding(MESH, PartitionSpec(("data",), None))


def test_the_first_user_may_lie_behind_a_name_or_inside_a_loop():
    step = tp.program("b e, e f -> b e")(lambda x, w: matmul(x, w).rename(f="e"))
    graph = tp.trace(
        lambda x, w: tp.iterate(step, 2)(x.rename(a="b"), w), *named("a e, e f", np.ones((4, 8)), np.ones((8, 8)))
    )
    plan = tp.plan(graph, MESH, {"b": "data", "f": "model"})
    assert [spec(s) for s in plan.in_shardings] == [(("data",), None), (None, ("model",))]


def test_stacked_weights_keep_the_stacked_axis_whole():
    layer = tp.program("b e, e f -> b e")(lambda x, w: matmul(x, w).rename(f="e"))
    graph = tp.trace(
        lambda x, ws: tp.stack(layer, 3)(x, ws), *named("b e, layer e f", np.ones((4, 8)), np.ones((3, 8, 8)))
    )
    plan = tp.plan(graph, MESH, {"f": "model"})
    assert spec(plan.in_shardings[1]) == (None, None, ("model",))


def test_layouts_keep_the_structure_of_arguments_and_results():
    def program(parameters, x):
        return {"y": matmul(x, parameters["w"]), "x": [x]}

    specs = ({"w": named("k n", np.ones((4, 8)))[0]}, named("m k", np.ones((6, 4)))[0])
    plan = tp.plan(tp.trace(program, *specs), MESH, {"m": "data", "n": "model"})
    assert jax.tree.structure(plan.in_shardings) == jax.tree.structure(({"w": 0}, 0))
    assert jax.tree.structure(plan.out_shardings) == jax.tree.structure({"y": 0, "x": [0]})


def test_unused_inputs_are_whole():
    graph = tp.trace(lambda x, y: tp.Map(jnp.sin)(x), *named("a, b", np.ones(4), np.ones(6)))
    assert spec(tp.plan(graph, MESH, {"a": "data"}).in_shardings[1]) == (None,)
