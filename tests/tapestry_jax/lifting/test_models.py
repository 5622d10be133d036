"""Models made of other people's layers, unmodified: Flax's, new and old, and callable pytrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.lifting import lift
from tests.simulated.sampled import computed, sampled
from tests.tapestry_jax.lifting.agree import close
from tests.thoroughly import thoroughly

SOURCE = np.random.default_rng(0)
TOKENS = SOURCE.integers(0, 32, (4, 8)).astype(np.int32)
X = SOURCE.standard_normal((4, 16)).astype(np.float32)
LAYERS = 4 if thoroughly() else 2
FRAMES = SOURCE.standard_normal((4, 6, 5)).astype(np.float32)


class Block(nnx.Module):
    def __init__(self, embed: int, heads: int, rngs: nnx.Rngs) -> None:
        self.before_attention = nnx.LayerNorm(embed, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, embed, decode=False, rngs=rngs)
        self.before_mlp = nnx.LayerNorm(embed, rngs=rngs)
        self.up, self.down = nnx.Linear(embed, 4 * embed, rngs=rngs), nnx.Linear(4 * embed, embed, rngs=rngs)

    def __call__(self, x: Any, mask: Any) -> Any:
        x = x + self.attention(self.before_attention(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.before_mlp(x))))


class Decoder(nnx.Module):
    def __init__(self, layers: int, embed: int, heads: int, vocab: int, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(vocab, embed, rngs=rngs)
        self.blocks = nnx.List([Block(embed, heads, rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(embed, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x, mask = self.embed(tokens), nnx.make_causal_mask(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.embed.attend(self.norm(x))


NAMES = {
    "tokens": "batch seq",
    "params/blocks/*/attention/[qkv]*/kernel": "embed heads _",
    "params/blocks/*/up/kernel": "embed mlp",
}


def sent(plan: tp.Plan) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for collective in plan.collectives():
        counts[collective.kind, collective.axes] += collective.bytes * collective.times
    return counts


def test_layers_of_flax_send_what_the_same_model_of_ours_sends() -> None:
    tokens = jax.ShapeDtypeStruct((8, 16), jnp.int32)
    graph = lift(Decoder(LAYERS, 32, 4, 64, nnx.Rngs(0)), tokens, names=NAMES)
    assert graph.opaque() == ()
    assert sum(isinstance(node, Apply) for node in graph.nodes) <= 10 + 21 * LAYERS
    ours = tp.nnx.Transformer(tp.nnx.TransformerConfig(layers=LAYERS, embed=32, heads=4, vocab=64), rngs=nnx.Rngs(0))
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
    entries = {"batch": "data", "heads": "model", "mlp": "model"}
    assert sent(tp.plan(graph, mesh, entries)) == sent(tp.plan(tp.trace(ours, tokens), mesh, entries)) != {}
    stacked = lift(Decoder(LAYERS, 32, 4, 64, nnx.Rngs(0)), tokens, names=NAMES, stack="layer")
    assert sent(tp.plan(stacked, mesh, entries)) == sent(tp.plan(graph, mesh, entries))
    costs = [tp.plan(g, mesh, entries).cost(tp.machines.H100).seconds for g in (stacked, tp.trace(ours, tokens))]
    assert costs[0] <= 1.1 * costs[1]
    assert len(stacked.nodes) <= 30 and {node.name.split("/")[2] for node in stacked.inputs[:16]} == {f"0:{LAYERS}"}


def test_a_decoder_of_flax_trains_the_same_on_a_mesh() -> None:
    model = Decoder(1, 16, 2, 32, nnx.Rngs(0))
    graphdef, state = nnx.split(model)

    def loss(state: Any, tokens: Any) -> Any:
        logits = jax.nn.log_softmax(nnx.merge(graphdef, state)(tokens))
        return -jnp.take_along_axis(logits, tokens[..., None], -1).mean()

    graph = lift(loss, state, TOKENS, names={"tokens": "batch seq", "state/embed/embedding": "vocab embed"})
    assert graph.opaque() == ()
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"batch": ("data", tp.chunks(2)), "vocab": "model"})
    plan.verify()
    want = computed(jax.value_and_grad(loss), state, TOKENS)
    close(sampled(jax.value_and_grad(plan.compile()), state, TOKENS), want, 2e-5, "planned")


class Convolutions(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.norm = nnx.Conv(1, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.second, self.last = nnx.Conv(4, 4, (3, 3), rngs=rngs), nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.avg_pool(nnx.relu(self.norm(self.first(x))), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.second(x)), (2, 2), (2, 2))
        return self.last(x.reshape(x.shape[0], -1))


def test_an_image_is_cut_with_halos_and_running_statistics_are_not_lost() -> None:
    model = Convolutions(nnx.Rngs(0))
    x = SOURCE.standard_normal((2, 8, 8, 1)).astype(np.float32)
    with pytest.raises(tp.GraphError, match=r"the call writes `norm.mean` of a module"):
        lift(model, x)
    model.eval()
    graph = lift(model, x, names={"x": "batch y x channel"})
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"batch": "data", "y": "model"})
    assert graph.opaque() == () and "collective-permute" in {found.kind for found in plan.collectives()}
    close(plan.compile()(nnx.state(model), x), model(x), 2e-5, "planned")


OLD: dict[str, tuple[nn.Module, Any]] = {
    "a perceptron": (nn.Sequential([nn.Dense(8), nn.gelu, nn.LayerNorm(), nn.Dense(4)]), X),
    "recurrent": (nn.RNN(nn.LSTMCell(4)), FRAMES),
    "attention": (nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=4), FRAMES),
    "groups": (nn.Sequential([nn.Conv(8, (3,)), nn.GroupNorm(4), nn.swish]), FRAMES),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name in ("a perceptron", "attention", "recurrent")))
        for name in OLD
    ],
)
def test_linen_modules_are_functions_of_their_variables(name: str) -> None:
    model, x = OLD[name]
    variables = model.init(jax.random.key(0), x)
    graph = lift(model, variables, x, names={"x": "batch ..."})
    close(graph(variables, x), model.apply(variables, x), 2e-5, "unplanned")
    plan = tp.plan(graph, tp.mesh(a=2), {"batch": "a"})
    assert graph.opaque() == () and plan.collectives() == ()
    close(plan.compile()(variables, x), model.apply(variables, x), 2e-5, "planned")


def test_dropout_draws_the_same_bits_on_every_mesh() -> None:
    model = nn.Sequential([nn.Dense(8), nn.Dropout(0.5, deterministic=False)])
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, X)

    def dropped(variables: Any, key: Any, x: Any) -> Any:
        return model.apply(variables, x, rngs={"dropout": key})

    graph = lift(dropped, variables, jax.random.key(2), X, names={"x": "batch embed"})
    run = tp.plan(graph, tp.mesh(a=2), {"batch": "a"}).compile()
    want = dropped(variables, jax.random.key(2), X)
    assert graph.opaque() == () and float((want == 0).mean()) > 0.2
    close(run(variables, jax.random.key(2), X), want, 2e-6, "planned")


@jax.tree_util.register_dataclass
@dataclass
class Affine:
    weight: Any
    bias: Any
    activation: Callable[[Any], Any]

    def __call__(self, x: Any) -> Any:
        return self.activation(x @ self.weight + self.bias)


def test_a_callable_pytree_is_a_module_whose_arrays_are_inputs() -> None:
    model = Affine(jnp.ones((16, 3)), jnp.zeros(3), jnp.tanh)
    graph = lift(model, X, names={"x": "batch embed"})
    assert [node.name for node in graph.inputs] == ["params/weight", "params/bias", "x"]
    held = Affine(model.weight, model.bias, None)  # pyright: ignore[reportArgumentType]
    close(graph(held, X), model(X), 1e-6, "unplanned")
    with pytest.raises(tp.GraphError) as caught:
        graph(model, X)
    assert str(caught.value).endswith(
        "\n  arrays in each argument: expected 2 and 1, got 3 and 1"
        "\n  no arrays: 0/activation PjitFunction"
        "\n  Pass None in the place of what is no array, as equinox.filter(model, equinox.is_array) does."
    )
