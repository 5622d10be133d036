"""Arrays that users hold have true shapes: what that stores, what it sends, and padded storage by name."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import tapestry_jax as tp
from combinators.stored.json import checksum
from tapestry_jax.hlo.collectives import compiled_collectives
from tapestry_jax.planning.geometry.changes import Cast
from tapestry_jax.planning.proof.prove import prove
from tapestry_jax.planning.scheduling.schedule import Convert
from tests.contract import assert_contract, assert_holds, table
from tests.simulated.evaluate import simulated
from tests.simulated.sampled import computed
from tests.tapestry_jax.damage import damaged
from tests.tapestry_jax.draw import named, normal
from tests.thoroughly import but

matmul = tp.einsum("i k, k n -> i n")
tanh = tp.Map(jnp.tanh)
GRID = AbstractMesh((2, 4), ("data", "model"))
ENTRIES = {"batch": "data", "mlp": "model"}
ARGS = (normal(7, 5), normal(5, 6, seed=1), normal(6, 3, seed=2))


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, up, down):
    return matmul(tanh(matmul(x, up)), down)


def plain(x, up, down):
    return jnp.tanh(x @ up) @ down


def mlp_plan(mesh, **stored):
    return tp.plan(tp.trace(mlp, *ARGS), mesh, ENTRIES, **stored)


def where(layout):
    return [axes if axes is None or isinstance(axes, tuple) else (axes,) for axes in layout.spec]


def sent(plan, grad=False):
    return [(each.kind, each.axes, each.bytes, each.path, each.backward) for each in plan.collectives(grad)]


# What is stored, and what it sends


def test_what_does_not_divide_is_stored_whole_and_sliced_inside():
    plan = mlp_plan(GRID)
    assert [where(each) for each in plan.in_shardings] == [[None, None]] * 3
    boundary = [each for each in sent(plan, grad=True) if each[3].startswith(("input ", "output "))]
    # Entering is free. Gradients are gathered in whole blocks: 8 rows of 5, 5 rows of 8, 8 rows of 3.
    assert boundary == [
        ("all-gather", ("data",), 8 * 5 * 4, "input x", True),
        ("all-gather", ("model",), 5 * 8 * 4, "input up", True),
        ("all-gather", ("model",), 8 * 3 * 4, "input down", True),
        ("all-gather", ("data",), 8 * 3 * 4, "output y", False),
    ]


def test_the_longest_prefix_of_mesh_axes_that_divides_stays():
    x = tp.TensorType({"row": 6, "col": 3})
    plan = tp.plan(tp.trace(tanh, x), GRID, {"row": ("data", "model")})
    assert where(plan.in_shardings[0]) == where(plan.out_shardings) == [("data",), None]
    plan = tp.plan(tp.trace(tanh, x), GRID, {"row": ("model", "data")})
    assert where(plan.in_shardings[0]) == [None, None]
    plan = tp.plan(tp.trace(tanh, tp.TensorType({"row": 8, "col": 3})), GRID, {"row": ("model", "data")})
    assert where(plan.in_shardings[0]) == [("model", "data"), None]


def test_chunks_that_do_not_divide_shift_rows_between_neighbours(mesh2x4):
    # 10 rows on two devices are five each; in two chunks of three the first device takes six.
    args = (normal(10, 3),)
    plan = tp.plan(tp.trace(tanh, *named("row col", *args)), mesh2x4, {"row": ("data", tp.chunks(2))})
    assert where(plan.in_shardings[0]) == where(plan.out_shardings) == [("data",), None]
    assert {each.kind for each in plan.collectives(grad=True)} == {"collective-permute"}
    assert_holds(plan, args, reference=jnp.tanh)


def test_readers_of_a_whole_argument_read_it_as_it_was_given():
    # The first reads columns, the second all of it: nothing is gathered.
    x, w = tp.TensorType({"n": 8, "k": 5}), tp.TensorType({"k": 5, "m": 6})
    graph = tp.trace(lambda x, w: (matmul(x, w), tp.Map(jnp.sin, "[k] [m] -> [k] [m]")(w)), x, w)
    plan = tp.plan(graph, GRID, {"m": "model"})
    assert [each.path for each in plan.collectives()] == ["output y/0"]
    # An argument that is a result as well leaves as it came.
    graph = tp.trace(lambda x: (x, tanh(x)), tp.TensorType({"row": 6}))
    assert [each.path for each in tp.plan(graph, GRID, {"row": "model"}).collectives()] == ["output y/1"]


@tp.program("row col, col -> row col")
def recurrent(x, w):
    step = tp.program("row col, col -> row col")(lambda x, w: tanh(x * w))
    return tp.iterate(step, 2)(x, w)


PLANS = {
    "cut twice": (mlp, ARGS, ENTRIES, {}),
    "prefix": (mlp, ARGS, {"batch": ("model", "data"), "mlp": None}, {}),
    "prefix that stays": (lambda x, y: tanh(x) * y, (normal(6, 3), normal(6, seed=1)), {"row": ("data", "model")}, {}),
    "smaller than the mesh": (mlp, (normal(1, 5), normal(5, 3), normal(3, 3)), ENTRIES, {}),
    "chunks": (mlp, ARGS, {"batch": ("data", tp.chunks(3)), "mlp": ("model", tp.chunks(2))}, {}),
    "repetition": (recurrent, (normal(5, 6), normal(6, seed=1)), {"row": "data", "col": "model"}, {}),
    "padded arguments": (
        mlp,
        ARGS,
        ENTRIES,
        {"inputs": {"up": {"mlp": tp.padded("model")}, "x": {"batch": tp.padded("data")}}},
    ),
    "padded otherwise than read": (mlp, ARGS, ENTRIES, {"inputs": {"up": {"embed": tp.padded("model", "data")}}}),
    "padded both": (
        mlp,
        ARGS,
        ENTRIES,
        {
            "inputs": {"up": {"mlp": tp.padded("model")}, "x": {"batch": tp.padded("data")}},
            "outputs": {"y": {"batch": tp.padded("data"), "out": tp.padded("model")}},
        },
    ),
    "padded results": (mlp, ARGS, ENTRIES, {"outputs": {"y": {"batch": tp.padded("data"), "out": tp.padded("model")}}}),
}
NAMES = {"prefix that stays": "row col, row", "repetition": "row col, col"}


# Cut twice is the same plan on a mesh with explicit axes, in test_transformations.py. Arguments and results in padded
# pieces are in one plan in every run, and what lies whole is sliced over both axes in contract/test_layouts.py.
@pytest.mark.parametrize("case", but(PLANS, "cut twice", "padded arguments", "padded results", "prefix"))
def test_everything_at_the_boundary_is_predicted(mesh2x4, case, capfd):
    program, args, entries, stored = PLANS[case]
    types = named(NAMES[case], *args) if case in NAMES else args
    plan = tp.plan(tp.trace(program, *types), mesh2x4, entries, **stored)
    assert_holds(plan, args, reference=plain if program is mlp else None)
    # XLA's partitioner says so where it has to move arrays in a way of its own.
    assert "rematerialization" not in capfd.readouterr().err


def test_a_training_step_with_pinned_layouts_sends_what_is_predicted(mesh2x4):
    plan = mlp_plan(mesh2x4)
    run, placed = plan.compile(), plan.put(*ARGS)

    def step(args, cotangent):
        value, pull = jax.vjp(run, *args)
        return value, [a - 0.1 * g for a, g in zip(args, pull(cotangent), strict=True)]

    at, out = plan.in_shardings, plan.out_shardings
    jitted = jax.jit(step, in_shardings=(at, out), out_shardings=(out, list(at)))
    found = compiled_collectives(jitted.lower(placed, jnp.ones((7, 3))).compile().as_text(), plan.mesh)
    assert table(found) == table(plan.collectives(grad=True))
    # Without pins, too: arrays lie in the planned layouts, and the program pins its own.
    free = jax.jit(step).lower(placed, jax.device_put(jnp.ones((7, 3)), out)).compile()
    assert table(compiled_collectives(free.as_text(), plan.mesh)) == table(plan.collectives(grad=True))


def test_parameters_are_made_where_they_lie():
    plan = mlp_plan(tp.mesh(data=2, model=3))
    for place, shape in zip(plan.in_shardings, (each.shape for each in ARGS), strict=True):
        made = jax.jit(lambda shape=shape: jax.random.normal(jax.random.key(0), shape), out_shardings=place)()
        assert made.sharding == place and made.shape == shape
        np.testing.assert_allclose(made, jax.random.normal(jax.random.key(0), shape), rtol=1e-6)


def test_arrays_that_lie_elsewhere_are_brought_before_the_program_runs(mesh2x4):
    plan = mlp_plan(mesh2x4)
    run, expected = plan.compile(), plain(*ARGS)
    x, up, down = ARGS
    on_one = jax.device_put(x, jax.devices()[5])
    otherwise = jax.device_put(up, NamedSharding(mesh2x4, PartitionSpec(None, "data")))
    np.testing.assert_allclose(run(on_one, otherwise, down), expected, rtol=1e-4, atol=1e-5)
    gradient = jax.grad(lambda *args: jnp.sum(run(*args) ** 2), 1)(on_one, otherwise, down)
    wanted = computed(jax.grad(lambda *args: jnp.sum(plain(*args) ** 2), 1), x, up, down)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_explain_says_how_arguments_are_stored_and_what_that_costs(mesh2x4):
    text = mlp_plan(mesh2x4, inputs={"down": {"mlp": tp.padded("model")}}).explain(grad=True)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "x float32(batch=7, embed=5): whole; batch of 7 does not divide over data=2, is sliced inside" in lines
    assert "down float32(mlp=6, out=3): mlp:model; mlp of 6 in padded pieces over model=4" in lines
    assert "input x slice batch over data all-gather data 160 B (gradient)" in lines
    assert "output y all-gather batch over data all-gather data 96 B" in lines


def test_the_proof_refuses_equal_copies_that_are_none():
    plan = mlp_plan(GRID)

    def cast_first(step):
        return replace(step, changes=(Cast(("data",)), *step.changes))

    with pytest.raises(tp.PlanError, match="slices what differs over `data` as equal copies"):
        prove(damaged(plan.schedule, Convert, cast_first))


# Padded storage


STORED = {
    "inputs": {"up": {"mlp": tp.padded("model")}, "down": {"mlp": tp.padded("model")}},
    "outputs": {"y": {"batch": tp.padded("data")}},
}


def test_padded_pieces_are_put_padded_and_cropped_by_name(mesh2x4):
    plan = mlp_plan(mesh2x4, **STORED)
    x, up, down = plan.put(*ARGS)
    assert [a.shape for a in (x, up, down)] == [(7, 5), (5, 8), (8, 3)]
    assert where(plan.in_shardings[1]) == [None, ("model",)] and up.sharding == plan.in_shardings[1]
    # Behind the true cells lie copies of the last one.
    np.testing.assert_array_equal(up, np.pad(ARGS[1], ((0, 0), (0, 2)), mode="edge"))
    np.testing.assert_array_equal(plan.crop(up, 1), ARGS[1])
    np.testing.assert_array_equal(plan.pad(plan.crop(down, 2), 2), down)
    assert plan.pad(ARGS[0], 0) is ARGS[0]
    run = plan.compile()
    result = run(x, up, down)
    assert result.shape == (8, 3) and plan.take(result).shape == (7, 3)
    np.testing.assert_allclose(plan.take(result), plain(*ARGS), rtol=1e-4, atol=1e-5)
    # True sizes are padded before the program runs, and what `put` made is put as it is.
    np.testing.assert_array_equal(run(*ARGS), result)
    assert all(a is b for a, b in zip(plan.put(x, up, down), (x, up, down), strict=True))


def test_padding_and_cropping_work_on_trees_inside_jit_and_under_grad(mesh2x4):
    graph = tp.trace(lambda x, w: plain_layers(x, w), ARGS[0], {"up": ARGS[1], "down": ARGS[2]})
    plan = tp.store_padded(tp.plan(graph, mesh2x4, ENTRIES), only=["w"])
    assert [name for name, _ in plan.inputs] == ["w/down", "w/up"]
    run, weights = plan.compile(), {"up": ARGS[1], "down": ARGS[2]}

    @jax.jit
    def value_and_slopes(weights):
        return jax.value_and_grad(lambda w: jnp.sum(run(ARGS[0], plan.pad(w, 1)) ** 2))(weights)

    value, slopes = value_and_slopes(weights)
    expected, wanted = computed(jax.value_and_grad(lambda w: jnp.sum(plain(ARGS[0], w["up"], w["down"]) ** 2)), weights)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), slopes, wanted)
    moments = jax.tree.map(jnp.square, plan.pad(weights, 1))
    jax.tree.map(np.testing.assert_array_equal, plan.crop(moments, 1), jax.tree.map(jnp.square, weights))
    with pytest.raises(tp.PlanError, match="another: argument=1"):
        plan.crop(moments)


def plain_layers(x, weights):
    return mlp(x, weights["up"], weights["down"])


def test_padded_storage_sends_nothing_at_the_boundary():
    plan = tp.store_padded(mlp_plan(GRID))
    assert dict(plan.inputs)["x"] == (("batch", (tp.padded("data"),)),)
    assert not [each for each in plan.collectives(grad=True) if each.path.startswith("input ")]
    even = tp.plan(tp.trace(tanh, tp.TensorType({"row": 8})), GRID, {"row": "model"})
    assert tp.store_padded(even) is even


def test_padded_storage_is_stored_with_the_plan(mesh2x4):
    plan = mlp_plan(mesh2x4, **STORED)
    again = tp.Plan.from_json(plan.to_json(), plan.graph, mesh2x4)
    assert (again.inputs, again.outputs) == (plan.inputs, plan.outputs)
    assert again.collectives(True) == plan.collectives(True) and again.in_shardings == plan.in_shardings


def test_layouts_of_older_files_that_do_not_divide_are_padded_as_they_were(mesh2x4):
    text = mlp_plan(mesh2x4, **STORED).to_json()
    content = json.loads(text)["content"]
    plain = [[name, [[dim, items[0]["padded"]] for dim, items in part]] for name, part in content["inputs"]]
    older = content | {"inputs": plain}
    stored = json.loads(text) | {"content": older, "checksum": checksum(older, None)}
    assert tp.Plan.from_json(json.dumps(stored), mlp_plan(mesh2x4).graph).inputs == mlp_plan(mesh2x4, **STORED).inputs


# Fully sharded parameters


def test_fsdp_takes_an_axis_that_divides_and_pads_only_when_told():
    graph = tp.trace(mlp, *named("batch embed, embed mlp, mlp out", normal(7, 5), normal(5, 6), normal(6, 3)))
    plan = tp.plan(graph, GRID, ENTRIES)
    # `x` is cut over `data` where it is read: it is the batch, although it is stored whole.
    assert dict(tp.fsdp(plan, "data", smallest=1).inputs) == {
        "up": (("mlp", ("data",)),),
        "down": (("mlp", ("data",)),),
    }
    stored = dict(tp.fsdp(plan, "data", smallest=1, padded=True).inputs)
    assert stored == {
        "up": (("embed", (tp.padded("data"),)), ("mlp", (tp.padded("model"),))),
        "down": (("mlp", (tp.padded("model"),)), ("out", (tp.padded("data"),))),
    }


def test_fsdp_in_padded_pieces(mesh2x4):
    plan = tp.fsdp(mlp_plan(mesh2x4), "data", smallest=1, padded=True)
    assert_contract(plan)
    run = plan.compile()
    np.testing.assert_allclose(run(*plan.put(*ARGS)), plain(*ARGS), rtol=1e-4, atol=1e-5)


def test_no_gradient_flows_through_the_padding_of_a_result(mesh2x4):
    # 5 rows in pieces of two: the third device holds one row of padding, the fourth two, all computed with `w`.
    args = (normal(5, 3), normal(3, seed=1))
    graph, stored = tp.trace(lambda x, w: x * w, *named("row col, col", *args)), {"y": {"row": tp.padded("model")}}
    run = tp.plan(graph, mesh2x4, {"row": "model"}, outputs=stored).compile().jitted
    slopes = simulated(lambda args, weights: jax.vjp(run, *args)[1](weights), args, jnp.ones((8, 3)))
    np.testing.assert_allclose(slopes[0], jnp.broadcast_to(args[1], (5, 3)), rtol=1e-4)
    np.testing.assert_allclose(slopes[1], args[0].sum(0), rtol=1e-4)
