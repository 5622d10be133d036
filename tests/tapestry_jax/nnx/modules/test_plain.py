"""Layers of `flax.nnx` inside of a module: lifted where they are called, with their parameters in its state."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tests.simulated.sampled import computed, sampled

MESH = AbstractMesh((2, 4), ("data", "model"))
gelu = tp.Map(jax.nn.gelu)


class Mixed(tp.nnx.Module):
    """Plain layers before and behind one of ours."""

    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
        self.up = nnx.Linear(16, 32, rngs=rngs)
        self.down = tp.nnx.Linear(32, 16, dims=("mlp", "embed"), rngs=rngs)

    @property
    def signature(self):
        return "batch seq embed -> batch seq embed"

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(gelu(self.up(x)))


class Plain(nnx.Module):
    """The same layers, all plain."""

    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(jax.nn.gelu(self.up(x)))


class Deep(tp.nnx.Module):
    def __init__(self, layers):
        self.layers = nnx.List(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Calls(tp.nnx.Module):
    """A plain layer and what is called of it."""

    def __init__(self, layer, forward):
        self.layer, self.own = layer, forward

    def forward(self, *xs):
        return self.own(self.layer, *xs)


def drawn(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def sent(plan):
    table = Counter()
    for each in plan.collectives(True):
        table[each.kind, each.axes] += each.bytes * each.times
    return table


def test_plain_layers_give_the_values_and_gradients_of_flax():
    mixed, plain, x = Mixed(nnx.Rngs(0)), Plain(nnx.Rngs(0)), drawn(4, 8, 16)
    nnx.update(mixed, nnx.state(plain))

    def loss(model, x):
        return jnp.sum(jnp.sin(model(x)))

    found, expected = (nnx.jit(nnx.value_and_grad(loss))(model, x) for model in (mixed, plain))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    assert jax.tree.structure(found[1]) == jax.tree.structure(expected[1])
    for got, want in zip(jax.tree.leaves(found[1]), jax.tree.leaves(expected[1]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_plain_layers_take_names_from_use():
    graph = tp.trace(Mixed(nnx.Rngs(0)), drawn(4, 8, 16))
    types = {node.name: node.results[0].names for node in graph.inputs}
    assert types["params/norm/scale"] == ("embed",)
    assert types["params/up/kernel"] == ("embed", "mlp"), "of the layer of ours that reads what it gives"
    assert types["params/attention/query/kernel"][0] == "embed"
    assert {node.path.split("/")[0] for node in graph.nodes} >= {"norm", "attention", "up", "down"}
    assert graph.opaque() == ()


def test_plain_layers_send_what_lifted_and_native_ones_send():
    x = tp.TensorType({"batch": 4, "seq": 8, "embed": 16})
    heads = "params/attention/query/kernel"
    mixed = tp.trace(Mixed(nnx.Rngs(0)), drawn(4, 8, 16))
    called = next(node for node in mixed.inputs if node.name == heads).results[0].names[1]
    lifted = tp.lift(Plain(nnx.Rngs(0)), x, names={heads: "_ heads _", "params/up/kernel": "_ mlp"})
    ours = tp.plan(mixed, MESH, {"batch": "data", called: "model", "mlp": "model"})
    theirs = tp.plan(lifted, MESH, {"batch": "data", "heads": "model", "mlp": "model"})
    ours.verify()
    assert sent(ours) == sent(theirs)
    assert sum(each.kind == "all-reduce" and each.axes == ("model",) for each in ours.collectives()) == 2


def test_plain_layers_run_under_a_plan():
    model, x = Mixed(nnx.Rngs(0)), drawn(4, 8, 16)
    plan = tp.plan(tp.trace(model, x), tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"})
    graphdef, state = nnx.split(model)
    run = plan.compile()
    found = sampled(jax.grad(lambda state, x: jnp.sum(jnp.sin(run(state, x)))), state, x)
    expected = computed(jax.grad(lambda state, x: jnp.sum(jnp.sin(nnx.merge(graphdef, state)(x)))), state, x)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_plain_layers_that_are_alike_share_the_names_of_their_dimensions():
    names = {
        node.name: node.results[0].names
        for node in tp.trace(Deep([Plain(nnx.Rngs(0)) for _ in range(2)]), drawn(4, 8, 16)).inputs
    }
    assert names["params/layers/0/up/kernel"] == names["params/layers/1/up/kernel"]
    assert names["params/layers/0/up/kernel"][1] == names["params/layers/1/down/kernel"][0] == "up_1"


def test_plain_layers_are_stacked():
    layers = [Mixed(nnx.Rngs(seed)) for seed in range(3)]
    x = drawn(2, 8, 16)
    expected = x
    for layer in layers:
        expected = layer(expected)
    stack = tp.nnx.Stack(layers)
    np.testing.assert_allclose(stack(x), expected, rtol=1e-4, atol=1e-5)
    graph = tp.trace(stack, x)
    assert {node.results[0].names[0] for node in graph.inputs if node.name != "x"} == {"layer"}


def test_plain_layers_have_methods():
    table = nnx.Embed(12, 8, rngs=nnx.Rngs(0))
    model = Calls(table, lambda table, tokens: table.attend(table(tokens)))
    tokens = np.array([[1, 11], [3, 0]], "int32")
    np.testing.assert_allclose(model(tokens), table.attend(table(tokens)), rtol=1e-5)
    (parameter, _) = tp.trace(model, tokens).inputs
    assert parameter.name == "params/layer/embedding"


def test_plain_layers_inside_of_plain_containers_and_around_ours():
    rngs = nnx.Rngs(0)
    sequential = nnx.Sequential(
        nnx.Linear(4, 6, rngs=rngs), tp.nnx.Linear(6, 4, rngs=rngs), nnx.LayerNorm(4, rngs=rngs)
    )
    x = drawn(3, 4)
    model = Calls(sequential, lambda layers, x: layers(x))
    np.testing.assert_allclose(model(x), sequential(x), rtol=1e-5, atol=1e-6)


def test_plain_layers_take_what_is_no_array_as_it_is():
    attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))
    mask = np.tril(np.ones((1, 1, 5, 5), bool))
    model = Calls(attention, lambda layer, x: layer(x, mask=mask, deterministic=True))
    x = drawn(2, 5, 8)
    np.testing.assert_allclose(model(x), attention(x, mask=mask), rtol=1e-4, atol=1e-6)


def test_plain_layers_leave_the_module_as_it_was():
    model = Mixed(nnx.Rngs(0))
    tp.trace(model, drawn(2, 4, 16))
    assert type(model.up) is nnx.Linear
    assert set(vars(model.up)) == set(vars(nnx.Linear(16, 32, rngs=nnx.Rngs(0))))


def test_plain_layers_whose_parameters_have_names_keep_them():
    up = nnx.Linear(16, 32, kernel_metadata={"dims": ("width", "mlp")}, rngs=nnx.Rngs(0))
    graph = tp.trace(Calls(up, lambda layer, x: layer(x)), drawn(4, 16))
    assert [node.results[0].names for node in graph.inputs] == [("mlp",), ("width", "mlp"), ("x_0", "width")]


@pytest.mark.parametrize("kind", ["BatchNorm", "Dropout"])
def test_plain_layers_write_as_in_flax(kind):
    """What they write is stored by a call, and comes out of a plan: statistics, and how often a key was drawn."""
    options = {"rate": 0.5} if kind == "Dropout" else {"num_features": 4}
    layer, theirs = (getattr(nnx, kind)(rngs=nnx.Rngs(0), **options) for _ in range(2))
    model, x = Calls(layer, lambda layer, x: layer(layer(x))), drawn(6, 4)
    run = tp.plan(tp.trace(model, tp.TensorType({"b": 6, "c": 4})), tp.mesh(data=2), {"b": "data"}).compile()
    for _ in range(2):
        planned, written = run(nnx.state(model), x)
        expected = theirs(theirs(x))
        for y in (planned, model(x)):
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
        known = dict(nnx.to_flat_state(nnx.state(theirs)))
        for path, variable in nnx.to_flat_state(written["layer"]):
            for got in (variable, dict(nnx.to_flat_state(nnx.state(model.layer)))[path]):
                np.testing.assert_allclose(got[...], known[path][...], rtol=1e-5, atol=1e-6)
    assert len(jax.tree.leaves(written)) == (1 if kind == "Dropout" else 2)


class Counts(nnx.Module):
    def __init__(self, rngs):
        self.up, self.calls = nnx.Linear(16, 32, rngs=rngs), 0

    def __call__(self, x):
        self.calls += 1
        return self.up(x) * self.calls


class Remembers(Counts):
    def __call__(self, x):
        self.seen = nnx.Variable(x)
        return self.up(x)


@pytest.mark.parametrize("layer", [Counts, Remembers])
def test_plain_layers_that_set_attributes_are_refused(layer):
    class Holder(tp.nnx.Module):
        def __init__(self, rngs):
            self.inner = layer(rngs)

        @property
        def signature(self):
            return "batch embed -> batch mlp"

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(tp.GraphError) as error:
        Holder(nnx.Rngs(0))(drawn(4, 16))
    assert str(error.value) == (
        f"a call of `inner`, a {layer.__name__}, sets or adds an attribute of it, or sows a value\n"
        "  its program is lifted alone, so the next call would not see that, and it would be lost\n"
        "  Set attributes in __init__, and return what changes; to look at a value, use tp.named."
    )


def test_plain_layers_that_draw_from_rngs_they_are_given_are_refused():
    elsewhere = nnx.Rngs(3)
    model = Calls(nnx.Dropout(0.5), lambda layer, x: layer(x, rngs=elsewhere))
    with pytest.raises(tp.GraphError) as error:
        model(drawn(4, 16))
    assert str(error.value) == (
        "a call of `layer`, a Dropout, draws from nnx.Rngs that it is given\n"
        "  the forward pass is a pure program, traced once for all calls: every call would draw the same keys\n"
        "  Let the forward pass take a random key, and hand that on: rngs=key."
    )
    model.eval()
    np.testing.assert_array_equal(model(drawn(4, 16)), drawn(4, 16))


def test_plain_layers_draw_from_a_key_that_the_forward_pass_takes():
    model = Calls(nnx.Dropout(0.5), lambda layer, x, key: layer(x, rngs=key))
    x = drawn(4, 16)
    for seed in range(2):
        key = jax.random.key(seed)
        np.testing.assert_array_equal(model(x, key), model.layer(x, rngs=key))


class Weighs(nnx.Module):
    """Holds arrays that are no variables, and a list of numbers."""

    def __init__(self, sets=False):
        self.up, self.mask, self.factors, self.sets = nnx.Linear(8, 8, rngs=nnx.Rngs(0)), np.arange(8.0), [2.0], sets

    def __call__(self, x):
        if self.sets:
            self.mask = self.mask * 2
        return self.up(x) * self.mask * self.factors[0]


def test_plain_layers_hold_arrays_that_are_no_variables_and_lists_that_change():
    model, x = Calls(Weighs(), lambda layer, x: x + layer(x)), drawn(4, 8)
    for mask, factor in ((np.arange(8.0), 2.0), (np.ones(8), 2.0), (np.ones(8), 3.0)):
        model.layer.mask, model.layer.factors[0] = np.float32(mask), factor
        np.testing.assert_allclose(model(x), x + model.layer.up(x) * mask * factor, rtol=1e-5, atol=1e-5)
    inputs = {node.name: node.results[0].names for node in tp.trace(model, x).inputs}
    assert inputs["params/layer/mask"] == inputs["params/layer/up/bias"]


def test_plain_layers_that_set_an_array_are_refused():
    model = Calls(Weighs(sets=True), lambda layer, x: layer(x))
    with pytest.raises(tp.GraphError, match="a call of `layer`, a Weighs, sets or adds an attribute of it"):
        model(drawn(4, 8))
