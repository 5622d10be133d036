"""Plain layers that give what they take: two axes of one kernel stay two, and the result is renamed where they meet."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tests.simulated.sampled import sampled

MESH = AbstractMesh((2, 4), ("data", "model"))
LINEAR = "batch embed -> batch embed"
IMAGE = "batch y x channels -> batch y x channels"
rngs = nnx.Rngs(0)


class Made(tp.nnx.Module):
    """Layers, and a forward pass that arrays may take through the same layers."""

    def __init__(self, forward, signature=None, **layers):
        self.own, self.told = forward, signature
        for name, layer in layers.items():
            setattr(self, name, layer)

    @property
    def signature(self):
        return self.told

    def forward(self, x):
        return self.own(self, x)


def linear():
    return nnx.Linear(16, 16, rngs=nnx.Rngs(1))


def conv():
    return nnx.Conv(4, 4, (3, 3), rngs=nnx.Rngs(2))


def late(model, x):
    h = model.a(x)
    return (x + h) + model.down(h)


DOWN = tp.nnx.Linear(16, 16, dims=("mlp", "embed"), rngs=nnx.Rngs(3))
ROWS, PIXELS = (4, 16), (2, 8, 8, 4)
MODELS = {
    "linear": (Made(lambda m, x: m.a(x), LINEAR, a=linear()), ROWS, "a_1"),
    "residual": (Made(lambda m, x: m.a(x) + x, LINEAR, a=linear()), ROWS, "a_1"),
    "residual without names": (Made(lambda m, x: x + m.a(x), a=linear()), ROWS, "a_1"),
    "before ours": (Made(lambda m, x: m.down(m.a(x)), "batch mlp -> batch out", a=linear(), down=DOWN), ROWS, "mlp_1"),
    "named later": (Made(late, LINEAR, a=linear(), down=DOWN), ROWS, "a_1"),
    "shared": (Made(lambda m, x: m.a(m.a(x)), LINEAR, a=linear()), ROWS, "a_1"),
    "shared without names": (Made(lambda m, x: m.a(m.a(m.a(x))), a=linear()), ROWS, "a_1"),
    "convolution": (Made(lambda m, x: x + m.a(x), IMAGE, a=conv()), PIXELS, "a_3"),
    "shared convolution": (Made(lambda m, x: m.a(m.a(x)), IMAGE, a=conv()), PIXELS, "a_3"),
}


def drawn(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def sent(plan):
    table = Counter()
    for each in plan.collectives(True):
        table[each.kind, each.axes] += each.bytes * each.times
    return table


@pytest.mark.parametrize("name", list(MODELS))
def test_square_layers_give_the_values_and_gradients_of_flax_under_a_plan(name):
    model, shape, coined = MODELS[name]
    x, (graphdef, state) = drawn(*shape), nnx.split(model)
    graph = tp.trace(model, x)
    kernel = next(node.results[0] for node in graph.inputs if node.name == "params/a/kernel")
    assert kernel.names[-1] == coined and kernel.names[-2] not in (coined, None)
    plan = tp.plan(graph, tp.mesh(data=2, model=4), {coined: "model", kernel.names[-2]: "data"})
    plan.verify()

    def loss(call):
        return sampled(jax.value_and_grad(lambda state, x: jnp.sum(jnp.sin(call(state, x)))), state, x)

    def plain(state, x):
        # The layers themselves, on arrays: nothing is lifted.
        return model.own(nnx.merge(graphdef, state), x)

    found, expected = loss(plan.compile()), loss(plain)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_square_layers_send_what_lifted_ones_send():
    model = Made(lambda m, x: x + m.a(x), LINEAR, a=nnx.Linear(16, 16, use_bias=False, rngs=rngs))
    x = tp.TensorType({"batch": 4, "embed": 16})
    lifted = tp.lift(lambda kernel, x: x + x @ kernel, drawn(16, 16), x)
    other = next(node.results[0].names[1] for node in lifted.inputs if node.name == "kernel")
    ours = tp.plan(tp.trace(model, x), MESH, {"batch": "data", "a_1": "model"})
    theirs = tp.plan(lifted, MESH, {"batch": "data", other: "model"})
    assert sent(ours) == sent(theirs) and sent(ours)


def test_square_layers_that_are_alike_share_the_name_of_what_they_make():
    layers = nnx.List([linear() for _ in range(3)])
    model = Made(lambda m, x: m.layers[2](x + m.layers[1](x + m.layers[0](x))), LINEAR, layers=layers)
    kernels = {n.results[0].names for n in tp.trace(model, drawn(*ROWS)).inputs if n.name.endswith("kernel")}
    assert kernels == {("embed", "layers_1")}


def test_square_layers_share_a_name_where_the_last_one_meets_nothing():
    layers = nnx.List([linear() for _ in range(2)])
    model = Made(lambda m, x: m.layers[1](x + m.layers[0](x)), layers=layers)
    kernels = {n.results[0].names[1] for n in tp.trace(model, drawn(*ROWS)).inputs if n.name.endswith("kernel")}
    assert kernels == {"layers_1"}


def test_square_layers_keep_the_name_that_somebody_wrote_whatever_the_order():
    def doubled(model, x):
        y = model.a(x) + x
        return y + x

    graph = tp.trace(Made(doubled, LINEAR, a=linear()), drawn(*ROWS))
    assert sum(node.path.startswith("rename") for node in graph.nodes) == 1


@pytest.mark.parametrize("signature", [LINEAR, None])
def test_square_layers_are_stacked(signature):
    def forward(model, x):
        return model.a(x)

    blocks = [Made(forward, signature, a=nnx.Linear(16, 16, rngs=rngs)) for _ in range(3)]
    x = expected = drawn(*ROWS)
    for block in blocks:
        expected = block.a(expected)
    stack = tp.nnx.Stack(blocks)
    np.testing.assert_allclose(stack(x), expected, rtol=1e-4, atol=1e-5)
    kernel = next(node.results[0] for node in tp.trace(stack, x).inputs if node.name.endswith("kernel"))
    assert kernel.names == ("layer", "embed" if signature else "x_1", "a_1")


def test_square_layers_leave_names_that_somebody_wrote():
    model = Made(lambda m, x: x + m.a(x), "a_1 embed -> a_1 embed", a=linear())
    graph = tp.trace(model, drawn(*ROWS))
    assert [node.results[0].names for node in graph.inputs] == [("a_1_1",), ("embed", "a_1_1"), ("a_1", "embed")]


def test_names_that_somebody_wrote_do_not_give_way():
    down = tp.nnx.Linear(16, 16, dims=("embed", "mlp"), rngs=rngs)
    model = Made(lambda m, x: x + m.down(x), "batch embed -> batch embed", down=down)
    with pytest.raises(tp.SignatureError) as error:
        tp.trace(model, drawn(*ROWS))
    assert "does not return what its signature says" in str(error.value)


def test_names_that_somebody_writes_later_stay_though_layers_were_called_so():
    def forward(model, x):
        y = x + model.a(x)
        return y.rename(embed="a_1") + y

    graph = tp.trace(Made(forward, "batch embed -> batch a embed", a=linear()), drawn(*ROWS))
    assert graph.type_of(graph.outputs[0][1]).names == ("batch", "a_1", "embed"), "two dimensions, as they were written"


def test_signatures_that_are_false_are_not_made_true():
    model = Made(lambda m, x: m.a(x) + x, "batch embed -> embed batch", a=linear())
    with pytest.raises(tp.SignatureError, match="this axis is `batch` of operand 0, and not `embed`"):
        tp.trace(model, drawn(16, 16))
