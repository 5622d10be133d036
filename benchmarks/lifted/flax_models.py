"""Models of packages made with Flax, new and old."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.lifted.entry import Entry, Lifted, normal, tokens


def mamba() -> Lifted:
    from flax import nnx
    from mamba2_jax import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        vocab_size=64, hidden_size=16, state_size=8, head_dim=8, chunk_size=4, num_hidden_layers=2, conv_kernel=4
    )
    graphdef, state = nnx.split(Mamba2ForCausalLM(config, rngs=nnx.Rngs(0)))

    def logits(state: Any, words: Any) -> Any:
        return nnx.merge(graphdef, state)(words)["logits"]

    return Lifted(logits, (state, tokens(4, 8, vocab=64)), {"words": "batch seq"}, {"batch": "data"})


def forecaster() -> Lifted:
    from flax import nnx
    from mamba2_jax import Mamba2Forecaster

    model = Mamba2Forecaster(3, 16, 1, 1, 6, d_state=8, headdim=8, chunk_size=4, rngs=nnx.Rngs(0))
    return Lifted(model, (normal(4, 8, 3),), {"x": "batch seq _"}, {"batch": "data"})


def experts() -> Lifted:
    from nano_moe.config import NanoMoEConfig
    from nano_moe.model import NanoMoE

    model = NanoMoE(NanoMoEConfig(vocab_size=64, n_layers=2, n_heads=4, d_model=16, d_ff=32, block_size=8))
    words = tokens(4, 8, vocab=64)
    variables = model.init(jax.random.key(0), words)
    return Lifted(model, (variables, words), {"x": "batch seq"}, {"batch": "data"})


def seq2seq() -> Lifted:
    from flax import linen as nn

    model = nn.Bidirectional(nn.RNN(nn.LSTMCell(8)), nn.RNN(nn.GRUCell(8)))
    x = normal(4, 6, 5)
    return Lifted(model, (model.init(jax.random.key(0), x), x), {"x": "batch time _"}, {"batch": "data"})


def recurrent() -> Lifted:
    from flax import nnx

    model = nnx.RNN(nnx.OptimizedLSTMCell(5, 8, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    return Lifted(model, (normal(4, 6, 5),), {"inputs": "batch time _"}, {"batch": "data"})


def convolutional_recurrent() -> Lifted:
    from flax import linen as nn

    model = nn.RNN(nn.ConvLSTMCell(4, (3, 3)))
    x = normal(4, 3, 8, 8, 2)
    return Lifted(model, (model.init(jax.random.key(0), x), x), {"x": "batch time y x _"}, {"batch": "data"})


def convolutions_of_graphs() -> Lifted:
    from flax import nnx
    from jraphx.nn.models import GCN

    return _graph(GCN(6, 8, 2, 4, rngs=nnx.Rngs(0)))


def attention_of_graphs() -> Lifted:
    from flax import nnx
    from jraphx.nn.models import GAT

    return _graph(GAT(6, 8, 2, 4, rngs=nnx.Rngs(0)))


def adam() -> Lifted:
    import optax

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = jax.nn.relu(x @ params["up"]) @ params["down"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        gradients = jax.grad(loss)(params)
        updates, after = chain.update(gradients, state, params)
        return optax.apply_updates(params, updates), after

    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 100)))
    params = {"up": normal(16, 32), "down": normal(32, 8, seed=1)}
    args = (params, chain.init(jax.tree.map(jnp.asarray, params)), normal(8, 16, seed=2), tokens(8, vocab=8))
    return Lifted(step, args, {"x": "batch embed", "params/up": "_ mlp"}, {"batch": "data", "mlp": "model"})


def ctc() -> Lifted:
    import optax

    def loss(logits: Any, ends: Any, labels: Any, label_ends: Any) -> Any:
        return optax.ctc_loss(logits, ends, labels, label_ends)

    ends, label_ends = jnp.zeros((4, 10)), jnp.zeros((4, 4))
    args = (normal(4, 10, 6), ends, tokens(4, 4, vocab=5) + 1, label_ends)
    return Lifted(loss, args, {"logits": "batch time letter", "labels": "batch label"}, {"batch": "data"})


def _graph(model: Any) -> Lifted:
    edges = tokens(2, 32, vocab=16)
    return Lifted(model, (normal(16, 6), edges), {"x": "node feature", "edge_index": "_ edge"}, {"node": "data"})


ENTRIES = (
    Entry("Mamba-2", "state-space language model, nnx", "mamba2-jax", mamba),
    Entry("Mamba-2 forecaster", "state-space, series", "mamba2-jax", forecaster),
    Entry("Nano MoE", "mixture of experts, linen", "nano-moe-jax", experts),
    Entry("Bidirectional LSTM and GRU", "recurrent, linen", "flax", seq2seq),
    Entry("LSTM", "recurrent, nnx", "flax", recurrent),
    Entry("ConvLSTM", "recurrent convolutions, linen", "flax", convolutional_recurrent),
    Entry("GCN", "graph neural network, nnx", "jraphx", convolutions_of_graphs),
    Entry("GAT", "graph neural network, nnx", "jraphx", attention_of_graphs),
    Entry("A step of AdamW", "optimizer", "optax", adam),
    Entry("CTC loss", "dynamic program", "optax", ctc),
)
