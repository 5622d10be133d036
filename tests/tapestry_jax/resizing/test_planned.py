"""A plan for some sizes runs arguments of others: the same entries, nothing searched again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import tapestry_jax as tp

product = tp.einsum("i k, k n -> i n")
TYPES = tp.TensorType({"batch": 8, "embed": 4}), tp.TensorType({"embed": 4, "mlp": 8})


@tp.program("batch embed, embed mlp -> batch mlp")
def layer(x, w):
    return tp.Map(jnp.tanh)(product(x, w))


def drawn(*shapes):
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype("float32") for shape in shapes]


def planned_layer(mesh, **options):
    return tp.planned(
        tp.plan(tp.trace(layer, *TYPES), mesh, {"batch": "data", "mlp": "model"}, **options), layer, *TYPES
    )


@pytest.mark.parametrize("batch", [8, 6, 5, 1])
def test_planned_runs_every_batch(batch):
    run = planned_layer(tp.mesh(data=2, model=4))
    x, w = drawn((batch, 4), (4, 8))
    np.testing.assert_allclose(run(x, w), np.tanh(x @ w), rtol=1e-5, atol=1e-6)


def test_planned_gradients_of_a_last_batch():
    run = planned_layer(tp.mesh(data=2, model=4))
    x, w = drawn((5, 4), (4, 8))
    found = jax.jit(jax.grad(lambda w: jnp.sum(run(x, w))))(w)
    np.testing.assert_allclose(found, x.T @ (1 - np.tanh(x @ w) ** 2), rtol=1e-4, atol=1e-5)


def test_planned_asks_for_the_same_and_keeps_each_plan():
    run = planned_layer(AbstractMesh((2, 4), ("data", "model")))
    first, last = (run.plan(*drawn((batch, 4), (4, 8))) for batch in (8, 5))
    assert first is run.plan(*drawn((8, 4), (4, 8))) and last is run.plan(*drawn((5, 4), (4, 8)))
    assert last.entries == first.entries and last.graph.inputs[0].results[0].names == ("batch", "embed")
    assert last.graph.inputs[0].results[0].shape == (5, 4)
    last.verify()


def test_planned_traces_nothing_for_sizes_that_it_knows():
    counted = []

    @tp.program("batch embed, embed mlp -> batch mlp")
    def counting(x, w):
        counted.append(x.shape)
        return product(x, w)

    mesh = AbstractMesh((2, 4), ("data", "model"))
    run = tp.planned(tp.plan(tp.trace(counting, *TYPES), mesh, {"batch": "data"}), counting, *TYPES)
    for batch in (8, 5, 8, 5, 6):
        run.plan(*drawn((batch, 4), (4, 8)))
    assert counted == [(8, 4), (5, 4), (6, 4)]


def test_planned_stores_as_far_as_sizes_divide():
    mesh = AbstractMesh((2, 4), ("data", "model"))
    run = planned_layer(
        mesh, inputs={"x": {"batch": ("data", "model")}}, outputs={"y": {"batch": "data", "mlp": "model"}}
    )
    stored = [run.plan(*drawn((batch, 4), (4, 8))).partition_specs().inputs[0] for batch in (8, 6, 5)]
    assert stored == [P(("data", "model"), None), P("data", None), P()]
    assert run.plan(*drawn((5, 4), (4, 8))).out_shardings.spec[0] is None


def test_planned_lifts_again():
    def network(params, x):
        return jnp.mean(jnp.tanh(x @ params["w"]))

    x, w = drawn((8, 4), (4, 8))
    names = {"x": "batch embed", "params/w": "embed mlp"}
    plan = tp.plan(
        tp.lift(network, {"w": w}, x, names=names), tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"}
    )
    run = tp.planned(plan, network, {"w": w}, x, names=names)
    for batch in (8, 5):
        np.testing.assert_allclose(run({"w": w}, x[:batch]), np.tanh(x[:batch] @ w).mean(), rtol=1e-5)


def test_planned_modules_that_are_traced_lifted_or_arguments():
    ours, theirs = tp.nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.Linear(4, 8, rngs=nnx.Rngs(0))
    mesh, (x,) = tp.mesh(data=2, model=4), drawn((8, 4))

    @tp.program
    def called(model, x):
        return model(x)

    graphs = {
        "traced": (tp.trace(ours, x), ours, (x,)),
        "lifted": (tp.lift(theirs, x), theirs, (x,)),
        "an argument": (tp.trace(called, ours, x), called, (ours, x)),
    }
    state = nnx.state(ours)
    for graph, program, specs in graphs.values():
        plan = tp.plan(graph, mesh, {graph.inputs[-1].results[0].names[0]: "data"})
        run = tp.planned(plan, program, *specs)
        np.testing.assert_allclose(run(state, x[:5]), ours(x[:5]), rtol=1e-5, atol=1e-6)


def test_planned_refuses_another_program():
    mesh = AbstractMesh((2, 4), ("data", "model"))
    run = tp.planned(tp.plan(tp.trace(layer, *TYPES), mesh, {"batch": "data"}), product, *TYPES)
    with pytest.raises(tp.PlanError) as error:
        run.plan(*drawn((5, 4), (4, 8)))
    assert "this plan of `layer` is for another program than `einsum` is at these sizes" in str(error.value)


def test_planned_refuses_what_is_no_plan():
    with pytest.raises(tp.PlanError) as error:
        tp.planned(layer, *TYPES)
    assert "tp.planned takes a plan first" in str(error.value)


def test_planned_lifts_again_as_it_was_lifted(mesh2x4):
    norm, x = nnx.BatchNorm(4, rngs=nnx.Rngs(0)), drawn((8, 4))[0]
    plan = tp.plan(tp.lift(norm, x, names="batch embed", state=True), mesh2x4, {"batch": "data"})
    _, written = tp.planned(plan, norm, x, names="batch embed", state=True)(nnx.state(norm), x[:6])
    np.testing.assert_allclose(written["mean"].get_value(), 0.01 * x[:6].mean(0), rtol=1e-4, atol=1e-6)


def test_planned_lifts_loops_again_as_maps(mesh2x4):
    def rows(w, x):
        return jax.lax.map(lambda row: jnp.tanh(row @ w), x)

    (x, w), names = drawn((8, 4), (4, 3)), "_, batch embed"
    plan = tp.plan(tp.lift(rows, w, x, names=names, maps=True), mesh2x4, {"batch": "data"})
    found = tp.planned(plan, rows, w, x, names=names, maps=True)(w, x[:5])
    np.testing.assert_allclose(found, rows(w, x[:5]), rtol=1e-4, atol=1e-6)


def test_planned_lifts_layers_again_as_one_loop(mesh2x4):
    def layers(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    x, *weights = drawn((8, 4), (4, 4), (4, 4), (4, 4))
    graph = tp.lift(layers, weights, x, names="_, batch embed", stack="layer")
    plan = tp.plan(graph, mesh2x4, {"batch": "data"})
    run = tp.planned(plan, layers, weights, x, names="_, batch embed", stack="layer")
    found = run(tp.stack_layers(graph, weights), x[:6])
    np.testing.assert_allclose(found, layers(weights, x[:6]), rtol=1e-4, atol=1e-6)


def test_planned_refuses_another_number_of_arguments():
    run = planned_layer(AbstractMesh((2, 4), ("data", "model")))
    with pytest.raises(tp.GraphError) as error:
        run.plan(*drawn((5, 4)))
    assert str(error.value) == (
        "`layer` takes 2 arrays, got 1\n"
        "  inputs: x float32(batch=8, embed=4), w float32(embed=4, mlp=8)\n"
        "  Pass the arguments that it was traced with."
    )


def test_planned_refuses_arguments_of_other_ranks_all_at_once():
    run = planned_layer(AbstractMesh((2, 4), ("data", "model")))
    with pytest.raises(tp.GraphError) as error:
        run.plan(*drawn((4,), (4, 8, 2)))
    assert str(error.value) == (
        "`layer` was planned for arguments of other ranks\n"
        "  x: expected float32(batch=8, embed=4) in any sizes, got float32(4,)\n"
        "  w: expected float32(embed=4, mlp=8) in any sizes, got float32(4, 8, 2)\n"
        "  Pass arrays with as many axes; a program of other axes has a plan of its own."
    )
