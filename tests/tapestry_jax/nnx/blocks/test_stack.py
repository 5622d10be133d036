"""Stacked layers: the same model as layer by layer, in value, gradient and weights, under any plan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.simulated.sampled import computed

# A stage of several layers is held in lowering/time/test_pipelines.py.
SIZES = {"layers": 2, "embed": 16, "heads": 4, "vocab": 32, "max_len": 8, "mlp": 24}
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, 32, (8, 8), np.int32))


def transformer(**options):
    return tp.nnx.Transformer(tp.nnx.TransformerConfig(**SIZES, **options), rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def pair():
    return transformer(), transformer(stacked=True)


def loss(model, tokens):
    return tp.nnx.cross_entropy(model(tokens), tokens)


def gradient(model):
    """That of a loss, and the logits."""
    graphdef, state = nnx.split(model)

    def scored(state):
        logits = nnx.merge(graphdef, state)(TOKENS)
        return tp.nnx.cross_entropy(logits, TOKENS), logits

    return computed(jax.grad(scored, has_aux=True), state)


def flat(state):
    return {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(state)}


def stacked_of(plain, layers=SIZES["layers"]):
    """The state of a model layer by layer, as the stacked one calls it."""
    whole = flat(plain)
    first = [path.removeprefix("decoder.0.") for path in whole if path.startswith("decoder.0.")]
    rest = {path: array for path, array in whole.items() if not path.startswith("decoder.")}
    return rest | {
        f"decoder.layer.{path}": np.stack([whole[f"decoder.{number}.{path}"] for number in range(layers)])
        for path in first
    }


def test_weights_values_and_gradients_are_those_of_the_model_layer_by_layer(pair):
    plain, stacked = pair
    jax.tree.map(np.testing.assert_array_equal, flat(nnx.state(stacked)), stacked_of(nnx.state(plain)))
    (own, logits), (theirs, wanted) = gradient(stacked), gradient(plain)
    np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-6)
    found, expected = flat(own), stacked_of(theirs)
    assert found.keys() == expected.keys()
    for path, array in expected.items():
        np.testing.assert_allclose(found[path], array, rtol=1e-4, atol=1e-6, err_msg=path)


def test_parameters_are_named_along_the_layers(pair):
    _, stacked = pair
    kernel = stacked.decoder.layer.attention.query.kernel
    assert kernel.shape == (2, 16, 4, 4) and kernel.get_metadata()["dims"] == ("layer", "embed", "heads", "head_dim")
    graph = tp.trace(stacked, TOKENS)
    names = {node.name: node.results[0].names for node in graph.inputs}
    assert names["params/decoder/layer/mlp/up/kernel"] == ("layer", "embed", "mlp")
    assert [node.path for node in graph.nodes if hasattr(node, "body")] == ["decoder/layer"]
    # The same names where another library's state was put in, which drops metadata.
    other = jax.tree.map(lambda array: nnx.Param(array), nnx.to_pure_dict(nnx.state(stacked)))
    nnx.update(stacked, nnx.State(other))
    again = tp.trace(transformer(stacked=True), TOKENS)
    assert {node.name: node.results[0].names for node in tp.trace(stacked, TOKENS).inputs} == names
    assert again.key == graph.key


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param({"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}, marks=pytest.mark.thorough),
        # Of attention, in lowering/time/test_pipelines.py.
        pytest.param(
            {"layer": "data", "batch": tp.chunks(2), "heads": "model", "mlp": "model"}, marks=pytest.mark.thorough
        ),
    ],
    ids=["tensors", "pipeline"],
)
def test_pipelines_sharded_parameters_and_remat_are_plans_like_any_other(pair, mesh2x4, entries):
    _, stacked = pair
    base = tp.plan(tp.trace(loss, stacked, TOKENS), mesh2x4, entries, remat={"decoder": True})
    plan = base if "layer" in entries else tp.fsdp(base, "data", smallest=64)
    plan.verify()
    assert_contract(plan, bounded=True)
    assert_same(plan, (nnx.state(stacked), TOKENS))


def test_a_stack_of_any_layers_runs_them_in_order():
    layers = [tp.nnx.Linear(4, 4, dims=("embed", "out"), rngs=nnx.Rngs(seed)) for seed in range(3)]

    class Residual(tp.nnx.Module):
        def __init__(self, linear):
            self.linear = linear

        def forward(self, x):
            return x + self.linear(x).rename(out="embed")

    x = jnp.arange(8.0).reshape(2, 4)
    expected = x
    for layer in layers:
        expected = expected + layer(expected)
    model = tp.nnx.Stack([Residual(layer) for layer in layers], over="turn")
    np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    assert model.layer.linear.kernel.get_metadata()["dims"] == ("turn", "embed", "out")
    np.testing.assert_allclose(tp.nnx.Stack(nnx.List([Residual(layers[0])]))(x), x + layers[0](x), rtol=1e-5)


def test_layers_made_in_a_loop_are_those_made_one_by_one():
    def make(rngs):
        return tp.nnx.MLP(4, 8, rngs=rngs)

    one_by_one, in_loop = nnx.Rngs(0, params=1), nnx.Rngs(0, params=1)
    expected = tp.nnx.Stack([make(one_by_one) for _ in range(3)], over="turn")
    made = tp.nnx.Stack.of(make, 3, "turn", rngs=in_loop)
    jax.tree.map(np.testing.assert_array_equal, flat(nnx.state(made)), flat(nnx.state(expected)))
    assert nnx.graphdef(made) == nnx.graphdef(expected)
    # Whoever draws next gets the next number.
    assert in_loop.params.count[...] == one_by_one.params.count[...] == 12
    x = jnp.ones((2, 4))
    np.testing.assert_array_equal(made(x), expected(x))


def test_the_number_of_layers_does_not_matter_to_how_they_are_made():
    made = []

    def make(rngs):
        made.append(None)
        return tp.nnx.Linear(4, 4, rngs=rngs)

    model = nnx.eval_shape(lambda: tp.nnx.Stack.of(make, 96, rngs=nnx.Rngs(0)))
    assert model.layer.kernel.shape == (96, 4, 4) and len(made) == 1


@pytest.mark.parametrize(
    ("make", "length", "rngs", "told"),
    [
        (3, 2, nnx.Rngs(0), "make= of Stack.of"),
        (lambda rngs: linear(4, 4), 0, nnx.Rngs(0), "length= of Stack.of"),
        (lambda rngs: linear(4, 4), 2, 0, "rngs= of Stack.of"),
        (lambda rngs: nnx.Linear(2, 2, rngs=rngs), 2, nnx.Rngs(0), "got Linear"),
        (lambda rngs: linear(4, 4, dims=("layer", "out")), 2, nnx.Rngs(0), "has a dimension `layer` already"),
    ],
)
def test_what_makes_no_layers_is_refused(make, length, rngs, told):
    with pytest.raises(tp.GraphError) as error:
        tp.nnx.Stack.of(make, length, rngs=rngs)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        (list, "got none"),
        (lambda: 3, "layers= of Stack"),
        (lambda: [nnx.Linear(2, 2, rngs=nnx.Rngs(0))], "got Linear"),
        (lambda: [linear(4, 4), linear(4, 5)], "in layer 0 and"),
        (lambda: [linear(4, 4), linear(4, 4, use_bias=False)], "`bias` is"),
        (lambda: [linear(4, 4), linear(4, 4, dtype=jnp.bfloat16)], "layer 1 is built otherwise"),
        (lambda: [linear(4, 4, dims=("layer", "out"))], "has a dimension `layer` already"),
    ],
)
def test_what_cannot_be_stacked_is_refused(layers, told):
    with pytest.raises(tp.GraphError) as error:
        tp.nnx.Stack(layers())
    assert told in str(error.value)


def test_a_config_says_stacked_with_true_or_false():
    with pytest.raises(tp.GraphError, match="stacked= of TransformerConfig"):
        tp.nnx.TransformerConfig(**SIZES, stacked="yes")


def linear(ins, outs, **options):
    return tp.nnx.Linear(ins, outs, rngs=nnx.Rngs(0), **options)
