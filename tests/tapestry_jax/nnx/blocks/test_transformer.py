"""The transformer: equal to Flax modules and plain jnp in value, gradient and cost; trained, stored, planned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

import tapestry_jax as tp
from combinators.operations import operation
from tests.simulated.sampled import computed
from tests.thoroughly import thoroughly

SIZES = {"layers": 2, "embed": 64, "heads": 4, "vocab": 128, "max_len": 128}
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, 128, (4, 64), np.int32))


@pytest.fixture(scope="module")
def model():
    return tp.nnx.Transformer(tp.nnx.TransformerConfig(**SIZES), rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def graph(model):
    return tp.trace(model, TOKENS)


@pytest.fixture(scope="module")
def loss_graph(model):
    return tp.trace(loss, model, TOKENS, TOKENS)


def loss(model, tokens, targets):
    return tp.nnx.cross_entropy(model(tokens), targets)


def test_more_layers_read_no_more_of_what_operations_are(monkeypatch: pytest.MonkeyPatch):
    # Found anew for each layer it is a third of the time in which a model of many layers is traced.
    asked = list[str]()
    told = operation.fingerprint
    monkeypatch.setattr(operation, "fingerprint", lambda part: (asked.append(str(part)), told(part))[1])

    def readings(layers: int) -> int:
        config = tp.nnx.TransformerConfig(layers=layers, embed=8, heads=2, vocab=16, max_len=8)
        model = nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))
        tp.trace(model, TOKENS[:, :8])
        asked.clear()
        tp.trace(model, TOKENS[:, :8])
        return len(asked)

    # A layer has a nonlinearity, which is the user's: a function that may come to be another one.
    assert readings(3) - readings(2) <= 1


class FlaxBlock(nnx.Module):
    def __init__(self, rngs):
        self.attention_norm, self.mlp_norm = nnx.LayerNorm(64, rngs=rngs), nnx.LayerNorm(64, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)
        self.mlp = nnx.Dict(up=nnx.Linear(64, 256, rngs=rngs), down=nnx.Linear(256, 64, rngs=rngs))

    def __call__(self, x):
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:-1]))
        x = x + self.attention(self.attention_norm(x), mask=mask)
        return x + self.mlp["down"](nnx.gelu(self.mlp["up"](self.mlp_norm(x))))


class FlaxTransformer(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.positions = nnx.Embed(128, 64, rngs=rngs), nnx.Embed(128, 64, rngs=rngs)
        self.decoder = nnx.List([FlaxBlock(rngs) for _ in range(2)])
        self.norm, self.head = nnx.LayerNorm(64, rngs=rngs), nnx.Linear(64, 128, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        for block in self.decoder:
            x = block(x)
        return self.head(self.norm(x))


def jnp_norm(x, p):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.maximum(0.0, (x * x).mean(-1, keepdims=True) - mean * mean)
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-6) * p["scale"]) + p["bias"]


def jnp_attention(x, p):
    q, k, v = (jnp.einsum("bse,ehd->bshd", x, p[n]["kernel"]) + p[n]["bias"] for n in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    visible = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(visible, scores, jnp.finfo(scores.dtype).min), -1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return jnp.einsum("bshd,hde->bse", mixed, p["out"]["kernel"]) + p["out"]["bias"]


def jnp_forward(p, tokens):
    x = jnp.take(p["embed"]["embedding"], tokens, axis=0) + p["positions"]["embedding"][: tokens.shape[1]]
    for i in range(2):
        block = p["decoder"][i]
        up, down = block["mlp"]["up"], block["mlp"]["down"]
        x = x + jnp_attention(jnp_norm(x, block["attention_norm"]), block["attention"])
        hidden = jax.nn.gelu(jnp_norm(x, block["mlp_norm"]) @ up["kernel"] + up["bias"])
        x = x + hidden @ down["kernel"] + down["bias"]
    return jnp_norm(x, p["norm"]) @ p["head"]["kernel"]


def jnp_loss(p, tokens, targets):
    return optax.softmax_cross_entropy_with_integer_labels(jnp_forward(p, tokens), targets).mean()


def test_transformer_equals_flax_with_gradients(model, graph, loss_graph):
    theirs = FlaxTransformer(nnx.Rngs(5))
    nnx.update(theirs, nnx.state(model))
    graphdef, state = nnx.split(theirs)

    def flax_loss(state):
        logits = nnx.merge(graphdef, state)(TOKENS)
        return optax.softmax_cross_entropy_with_integer_labels(logits, TOKENS).mean(), logits

    (expected, logits), wanted = computed(jax.value_and_grad(flax_loss, has_aux=True), state)
    np.testing.assert_allclose(computed(graph, nnx.state(model), TOKENS), logits, rtol=1e-4, atol=2e-5)
    value, grads = computed(jax.value_and_grad(loss_graph), nnx.state(model), TOKENS, TOKENS)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    wanted = nnx.to_pure_dict(wanted)
    # Only positions below the sequence's length have a gradient in either.
    for (path, a), b in zip(jax.tree.leaves_with_path(nnx.to_pure_dict(grads)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=str(path))


def test_trace_names_parameters_by_attribute_path(graph):
    named = {node.name: str(node.results[0]) for node in graph.inputs}
    assert len(named) == 38
    assert named["params/decoder/1/attention/query/kernel"] == "float32(embed=64, heads=4, head_dim=16)"
    assert named["params/decoder/0/attention/out/kernel"] == "float32(heads=4, head_dim=16, embed=64)"
    assert named["params/decoder/0/mlp/down/kernel"] == "float32(mlp=256, embed=64)"
    assert named["params/embed/embedding"] == "float32(vocab=128, embed=64)"
    assert named["params/head/kernel"] == "float32(embed=64, vocab=128)"
    assert named["tokens"] == "int32(batch=4, seq=64)"
    assert graph.type_of(graph.outputs[0][1]).names == ("batch", "seq", "vocab")


def test_anonymous_and_named_tokens_give_one_program(model, graph):
    assert tp.trace(model, tp.TensorType({"batch": 4, "seq": 64}, jnp.int32)).key == graph.key


def test_equal_layers_have_equal_keys(graph):
    keys = {layer: graph.subgraph(f"decoder/{layer}").key for layer in (0, 1)}
    assert keys[0] == keys[1]
    assert graph.subgraph("decoder/0/attention").key == graph.subgraph("decoder/1/attention").key
    assert graph.subgraph("decoder/0/attention").key != graph.subgraph("decoder/0/mlp").key


def test_attention_folds_keys_and_embedding_folds_vocab(graph):
    by_path = {node.path: node for node in graph.nodes if hasattr(node, "operation")}
    attention = by_path["decoder/1/attention/attention"]
    assert attention.operation.monoid.name == tp.monoids.AttentionState.name
    assert set(attention.bound.values()) == {"batch", "seq", "heads", "keys", "head_dim"}
    assert "vocab" in by_path["embed/take"].bound.values() and by_path["embed/take"].operation.kind == "reduce"


def test_stored_graph_reads_back(graph):
    assert tp.Graph.from_json(graph.to_json()).key == graph.key


def costs(function, *args) -> dict[str, float]:
    found = jax.jit(function).lower(*args).compile().cost_analysis()
    return {"flops": found["flops"], "bytes": found["bytes accessed"]}


# Its layers are counted in tests/benchmarks/test_counts.py.
@pytest.mark.thorough
def test_uncut_cost_is_that_of_plain_jnp(model, graph, loss_graph):
    state, pure = nnx.state(model), nnx.to_pure_dict(nnx.state(model))
    np.testing.assert_allclose(graph(state, TOKENS), jnp_forward(pure, TOKENS), rtol=1e-4, atol=2e-5)
    pairs = [(costs(graph, state, TOKENS), costs(jnp_forward, pure, TOKENS))] if thoroughly() else []
    backward = (
        costs(jax.value_and_grad(loss_graph), state, TOKENS, TOKENS),
        costs(jax.value_and_grad(jnp_loss), pure, TOKENS, TOKENS),
    )
    for ours, plain in (*pairs, backward):
        for what in ("flops", "bytes"):
            assert ours[what] <= 1.02 * plain[what], (what, ours[what] / plain[what])


@pytest.mark.thorough
def test_training_with_optax_reduces_the_loss():
    config = tp.nnx.TransformerConfig(layers=1, embed=16, heads=2, vocab=11, max_len=8)
    model = tp.nnx.Transformer(config, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 11, (4, 8), np.int32))

    @nnx.jit
    def step(model, optimizer):
        value, grads = nnx.value_and_grad(loss)(model, tokens, tokens)
        optimizer.update(model, grads)
        return value

    losses = [float(step(model, optimizer)) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    assert model.head.kernel.get_metadata()["dims"] == ("embed", "vocab")


@pytest.mark.thorough
def test_orbax_stores_and_restores_the_state(tmp_path):
    config = tp.nnx.TransformerConfig(layers=1, embed=16, heads=2, vocab=11, max_len=8)
    model = tp.nnx.Transformer(config, rngs=nnx.Rngs(0))
    other = tp.nnx.Transformer(config, rngs=nnx.Rngs(1))
    tokens = TOKENS[:2, :8] % 11
    assert not np.allclose(model(tokens), other(tokens))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", nnx.state(model))
        checkpointer.wait_until_finished()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, nnx.state(other))
        nnx.update(other, checkpointer.restore(tmp_path / "state", abstract))
    np.testing.assert_array_equal(model(tokens), other(tokens))
    assert tp.trace(other, tokens).inputs == tp.trace(model, tokens).inputs


@pytest.mark.thorough
def test_cut_vocabulary_and_heads_give_the_same_loss(mesh2x4):
    config = tp.nnx.TransformerConfig(layers=1, embed=16, heads=4, vocab=32, max_len=8)
    model = tp.nnx.Transformer(config, rngs=nnx.Rngs(0))
    tokens = TOKENS[:2, :8] % 32
    graph = tp.trace(loss, model, tokens, tokens)
    state = nnx.state(model)
    plan = tp.plan(graph, mesh2x4, {"batch": "data", "vocab": "model", "heads": "model", "mlp": "model"})
    value, grads = jax.jit(jax.value_and_grad(plan.compile()))(*plan.put(state, tokens, tokens))
    expected, wanted = computed(jax.value_and_grad(graph), state, tokens, tokens)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_half_precision_computation_keeps_float32_parameters():
    config = tp.nnx.TransformerConfig(layers=1, embed=16, heads=2, vocab=11, max_len=8, dtype=jnp.bfloat16)
    model = tp.nnx.Transformer(config, rngs=nnx.Rngs(0))
    assert model(TOKENS[:1, :8] % 11).dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model))} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("sizes", "text"),
    [({"heads": 3}, "does not divide embed"), ({"vocab": 0, "layers": -1}, "layers is -1(.|\n)*vocab is 0")],
)
def test_impossible_config_names_every_problem(sizes, text):
    with pytest.raises(tp.GraphError, match=text):
        tp.nnx.TransformerConfig(**(SIZES | sizes))


def test_tokens_that_do_not_fit_are_typed_errors(model):
    with pytest.raises(tp.SignatureError, match="128 positions for `seq` of size 129"):
        model(jnp.zeros((1, 129), jnp.int32))
    with pytest.raises(tp.SignatureError, match="integer tokens"):
        model(jnp.zeros((1, 8)))
