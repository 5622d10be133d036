"""The user code that the design promises, as far as this version goes: it must work as written."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tests.tapestry_jax.draw import normal

BATCH, EMBED, MLP, OUT = 8, 6, 12, 4


def valid_conv(x: jax.Array, f: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, f, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


gelu = tp.Map(jax.nn.gelu)
softmax = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
conv = tp.Reduce(valid_conv, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)
project = tp.einsum("b s k, k h d -> b s h d")
split = tp.rearrange("b s (h d) -> b s h d", h=8)
cumsum = tp.Scan(tp.monoids.Sum, "... t -> ... t", over="t")
stats = tp.fold(tp.aggregators.Moments(), "row col -> col")


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, w1, w2):
    return matmul(gelu(matmul(x, w1)), w2)


@pytest.fixture
def arrays() -> tuple[jax.Array, ...]:
    return normal(BATCH, EMBED), normal(EMBED, MLP), normal(MLP, OUT)


def test_tour_leaves_compute_what_their_kernels_compute():
    x = normal(2, 3, 16)
    np.testing.assert_allclose(softmax(x), jax.nn.softmax(x), rtol=1e-6)
    np.testing.assert_allclose(cumsum(x), np.cumsum(x, -1), rtol=1e-4, atol=1e-5)
    assert split(x).shape == (2, 3, 8, 2)
    np.testing.assert_allclose(stats(x[0])["variance"], np.var(x[0], 0), rtol=1e-5)
    w = normal(16, 2, 4)
    np.testing.assert_allclose(project(x, w), np.einsum("bsk,khd->bshd", x, w), rtol=1e-4, atol=1e-5)
    image, filters = normal(2, 12, 13, 3), jnp.ones((3, 3, 3, 5))
    np.testing.assert_allclose(conv(image, filters), valid_conv(image, filters), rtol=1e-4, atol=1e-5)


def test_tour_program_is_a_jax_function(arrays: tuple[jax.Array, ...]):
    x, w1, w2 = arrays
    expected = jax.nn.gelu(x @ w1) @ w2
    np.testing.assert_allclose(mlp(x, w1, w2), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jit(mlp)(x, w1, w2), expected, rtol=1e-4, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda w: mlp(x, w, w2).sum()))(w1)
    np.testing.assert_allclose(
        gradient, jax.jit(jax.grad(lambda w: (jax.nn.gelu(x @ w) @ w2).sum()))(w1), rtol=1e-4, atol=1e-4
    )
    stacked = jax.jit(jax.vmap(mlp, (0, None, None)))(jnp.stack([x, 2 * x]), w1, w2)
    np.testing.assert_allclose(stacked[0], expected, rtol=1e-4, atol=1e-5)


def test_tour_graph_is_inspected_stored_and_hashed(arrays: tuple[jax.Array, ...]):
    graph = tp.trace(mlp, *arrays)
    again = tp.trace(
        mlp,
        tp.TensorType({"batch": BATCH, "embed": EMBED}),
        jax.ShapeDtypeStruct((EMBED, MLP), jnp.float32),
        tp.TensorType({"mlp": MLP, "out": OUT}, jnp.float32),
    )
    assert graph.key == again.key
    assert graph.observe("y").key == graph.key
    assert tp.Graph.from_json(graph.to_json()).key == graph.key


def test_tour_plan_by_hand_equals_the_unplanned_program(arrays: tuple[jax.Array, ...]):
    graph = tp.trace(mlp, *arrays)
    mesh = tp.mesh(data=2, model=4)
    plan = tp.plan(graph, mesh, {"batch": "data", "mlp": "model"})
    plan.verify()
    assert "all-reduce model" in plan.explain(grad=True)
    assert {item.kind for item in plan.collectives(grad=True)} == {"all-reduce"}
    run = plan.compile()
    args = plan.put(*arrays)
    np.testing.assert_allclose(run(*args), mlp(*arrays), rtol=1e-4, atol=1e-5)
    value, gradient = jax.jit(jax.value_and_grad(lambda *a: run(*a).sum()))(*args)
    expected = jax.jit(jax.value_and_grad(lambda *a: mlp(*a).sum()))(*arrays)
    np.testing.assert_allclose(value, expected[0], rtol=1e-4)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-4, atol=1e-4)
    assert "all-reduce" in run.lower().compile().as_text()
    made = jax.jit(lambda key: jax.random.normal(key, (EMBED, MLP)), out_shardings=plan.in_shardings[1])
    assert made(jax.random.key(0)).sharding == plan.in_shardings[1]
    stored = tp.Plan.from_json(plan.to_json(), graph)
    assert stored.collectives(grad=True) == plan.collectives(grad=True)


def test_tour_abstract_mesh_plans_without_devices(arrays: tuple[jax.Array, ...]):
    mesh = AbstractMesh((64, 16), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    plan = tp.plan(tp.trace(mlp, *arrays), mesh, {"batch": "data", "mlp": "model"})
    # Six rows do not lie evenly on 64 devices, and leave whole.
    assert [(item.kind, item.axes) for item in plan.collectives()] == [
        ("all-reduce", ("model",)),
        ("all-gather", ("data",)),
    ]


def test_tour_exceptions_by_operation_path(arrays: tuple[jax.Array, ...]):
    graph = tp.trace(mlp, *arrays)
    plan = tp.plan(graph, tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"}, ops={"matmul_1": {"mlp": None}})
    assert {item.kind for item in plan.collectives()} == {"all-gather"}
    np.testing.assert_allclose(plan.compile()(*arrays), mlp(*arrays), rtol=1e-4, atol=1e-5)


def test_tour_plan_by_search_is_priced_on_its_machine(arrays: tuple[jax.Array, ...], tmp_path: Path):
    graph, mesh = tp.trace(mlp, *arrays), tp.mesh(data=2, model=4)
    plan = tp.search(graph, mesh, machine=tp.machines.H100, memory="70GB", method="auto", seed=0)
    assert plan.gap is None or plan.gap >= 0
    assert "on H100" in str(plan.why("matmul", {"mlp": "data"}))
    assert plan.cost() == plan.cost(tp.machines.H100) and plan.timeline().machine == "H100"
    assert "H100" in plan.show(tmp_path / "plan.html").read_text()
    assert plan.diff(tp.plan(graph, mesh, {"mlp": "model"}), tp.machines.H100)
    shards = plan.shards()
    shards.verify(graph)
    assert shards.abstract() == graph and shards.cost(tp.machines.H100) == plan.cost()


def test_tour_search_needs_no_machine_where_its_devices_are(arrays: tuple[jax.Array, ...]):
    plan = tp.search(tp.trace(mlp, *arrays), tp.mesh(data=2, model=4))
    assert plan.machine is not None and plan.machine.name == "CPU" and plan.cost().machine == "CPU"
    np.testing.assert_allclose(plan.compile()(*arrays), mlp(*arrays), rtol=1e-4, atol=1e-5)


def test_tour_arrows_compose():
    x = normal(4, 6)
    tanh = tp.Map(jnp.tanh)
    np.testing.assert_allclose((gelu >> tanh)(x), jnp.tanh(jax.nn.gelu(x)), rtol=1e-6)
    left, right = (gelu * tanh)(x, 2 * x)
    np.testing.assert_allclose(right, jnp.tanh(2 * x), rtol=1e-6)
    np.testing.assert_allclose(left, jax.nn.gelu(x), rtol=1e-6)
    both = (gelu & tanh)(x)
    np.testing.assert_allclose(both[1], jnp.tanh(x), rtol=1e-6)
    chosen = (gelu | tanh)(tp.Either(jnp.array(False), x, x))
    np.testing.assert_allclose(chosen, jnp.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(gelu.first()(x, x)[1], x)
    np.testing.assert_allclose(gelu.second()(x, x)[0], x)
    np.testing.assert_allclose((tp.identity >> gelu)(x), jax.nn.gelu(x), rtol=1e-6)
    w = normal(6, 3)
    np.testing.assert_allclose((gelu >> matmul.bind(w))(x), jax.nn.gelu(x) @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tp.iterate(tanh, 3)(x), jnp.tanh(jnp.tanh(jnp.tanh(x))), rtol=1e-6)
