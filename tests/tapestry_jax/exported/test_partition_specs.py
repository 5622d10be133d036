"""A plan's shardings given to `jax.jit`: equal values, and XLA sends what the plan says."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest
from flax import nnx
from flax.core import spmd
from flax.linen import logical_to_mesh_axes
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import tapestry_jax as tp
from tapestry_jax.hlo.collectives import compiled_collectives

MESH = AbstractMesh((2, 4), ("data", "model"))


def mlp(params, x):
    hidden = jax.nn.gelu(x @ params["up"] + params["bias"])
    return {"y": hidden @ params["down"]}


def arguments():
    random = np.random.default_rng(0)
    shapes = {"up": (16, 32), "bias": (32,), "down": (32, 16)}
    params = {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    return params, random.normal(size=(8, 16)).astype("float32")


def lifted():
    return tp.lift(mlp, *arguments(), names={"x": "batch embed", "params/up": "embed mlp"})


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nnx.gelu(self.up(x)))


def sent(found):
    table = Counter()
    for each in found:
        table[each.kind, frozenset(each.axes)] += each.bytes * each.times
    return table


def assert_same(plan, function, args):
    """The plain function under `jax.jit` with the exported shardings: values of the plan, and its collectives."""
    specs = plan.partition_specs()
    given, made = (
        jax.tree.map(lambda spec: NamedSharding(plan.mesh, spec), part) for part in (specs.inputs, specs.outputs)
    )
    compiled = jax.jit(function, in_shardings=given, out_shardings=made).lower(*args).compile()
    assert sent(compiled_collectives(compiled.as_text(), plan.mesh)) == sent(plan.collectives())
    expected, actual = plan.compile()(*args), compiled(*jax.device_put(args, given))
    assert jax.tree.structure(expected) == jax.tree.structure(actual)
    for want, got in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return specs


@pytest.mark.parametrize(
    ("entries", "inputs"),
    [
        ({"batch": "data", "mlp": "model"}, None),
        ({"batch": ("data", "model")}, None),
        ({"batch": "data", "mlp": "model"}, {"params/up": {"embed": "data", "mlp": "model"}}),
    ],
    ids=["tensors", "batch", "stored"],
)
def test_specs_of_a_function_send_what_the_plan_sends(entries, inputs):
    assert_same(tp.plan(lifted(), tp.mesh(data=2, model=4), entries, inputs=inputs), mlp, arguments())


def test_specs_of_a_module_are_a_state_like_its_own():
    block = Block(nnx.Rngs(0))
    graphdef, state = nnx.split(block)
    x = np.random.default_rng(0).normal(size=(4, 8, 16)).astype("float32")
    names = {
        "x": "batch seq embed",
        "params/attention/query/kernel": "embed heads head_dim",
        "params/up/kernel": "_ mlp",
    }
    plan = tp.plan(
        tp.lift(block, x, names=names), tp.mesh(data=2, model=4), {"batch": "data", "heads": "model", "mlp": "model"}
    )
    specs = assert_same(plan, lambda state, x: nnx.merge(graphdef, state)(x), (state, x))
    assert jax.tree.structure(specs.inputs[0]) == jax.tree.structure(state)
    assert specs.inputs[0]["attention"]["query"]["kernel"].get_value() == PartitionSpec(None, "model", None)
    queries = next(path for path in specs.values if path.endswith("dot_general"))
    assert specs.values[queries] == PartitionSpec("data", None, "model", None)


def test_specs_need_no_devices_and_say_what_operations_make():
    specs = tp.plan(lifted(), MESH, {"batch": "data", "mlp": "model"}).partition_specs()
    assert specs.inputs == (
        {"up": PartitionSpec(None, "model"), "bias": PartitionSpec("model"), "down": PartitionSpec("model", None)},
        PartitionSpec("data", None),
    )
    assert specs.outputs == {"y": PartitionSpec("data", None)}
    assert specs.values["dot_general"] == PartitionSpec("data", "model")


def test_specs_of_sizes_that_do_not_divide_say_what_divides():
    graph = tp.trace(tp.einsum("i k, k n -> i n"), tp.TensorType({"i": 6, "k": 4}), tp.TensorType({"k": 4, "n": 8}))
    whole = tp.plan(graph, MESH, {"i": ("data", "model")}).partition_specs()
    assert whole.inputs[0] == PartitionSpec("data", None) and whole.unsaid == ()
    padded = tp.plan(graph, MESH, {"i": ("data", "model")}, inputs={"x0": {"i": tp.padded("data", "model")}})
    assert padded.partition_specs().inputs[0] == PartitionSpec("data", None)
    (found,) = padded.partition_specs().unsaid
    assert (found.kind, found.path) == ("padding", "x0")


@pytest.mark.parametrize("stored", [None, {"params/up": {"embed": "data", "mlp": "model"}}])
def test_rules_give_flax_the_specs(stored):
    plan = tp.plan(lifted(), MESH, {"batch": "data", "mlp": "model"}, inputs=stored)
    specs = plan.partition_specs()
    inputs = dict(zip((node.name for node in plan.graph.inputs), jax.tree.leaves(specs.inputs), strict=True))
    for name, spec in inputs.items():
        assert logical_to_mesh_axes(specs.names[name], specs.rules) == spec, "flax.linen"
        assert PartitionSpec(*spmd.from_sharding_rules(specs.names[name], specs.rules)) == spec, "flax.nnx"


def test_rules_call_what_is_stored_otherwise_otherwise():
    plan = tp.plan(
        lifted(), MESH, {"batch": "data", "mlp": "model"}, inputs={"params/up": {"embed": "data", "mlp": "model"}}
    )
    specs = plan.partition_specs()
    assert specs.names["params/up"] == ("embed_over_data", "mlp")
    assert dict(specs.rules)["embed_over_data"] == "data" and dict(specs.rules)["embed"] is None


def test_rules_make_parameters_of_flax_where_the_plan_wants_them():
    specs = tp.plan(lifted(), MESH, {"batch": "data", "mlp": "model"}).partition_specs()
    kernel = nnx.with_partitioning(nnx.initializers.ones, specs.names["params/up"], sharding_rules=specs.rules)
    mesh = tp.mesh(data=2, model=4)
    with jax.set_mesh(mesh):
        model = nnx.Linear(16, 32, kernel_init=kernel, rngs=nnx.Rngs(0))
        assert nnx.get_partition_spec(nnx.state(model))["kernel"].get_value() == PartitionSpec(None, "model")


def test_specs_are_printed_with_what_they_do_not_say():
    plan = tp.plan(lifted(), MESH, {"batch": ("data", tp.chunks(2)), "mlp": "model"})
    assert str(plan.partition_specs()) == "\n".join(
        [
            "logical axes:",
            "  params/bias: mlp",
            "  params/down: mlp down_1",
            "  params/up: embed mlp",
            "  x: batch embed",
            "  y/y: batch down_1",
            "rules:",
            "  mlp: model",
            "  down_1: whole",
            "  embed: whole",
            "  batch: data",
            "no PartitionSpec says:",
            "  chunks at batch in 2 chunks: `batch` in 2 chunks: 2 turns",
        ]
    )
