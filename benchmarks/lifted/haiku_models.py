"""Models of `dm-haiku`, and of `jraph`, whose networks of graphs are functions of any framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.lifted.entry import Entry, Lifted, normal, tokens


def resnet() -> Lifted:
    import haiku as hk

    def classify(x: Any, is_training: bool = False) -> Any:
        sizes = {"blocks_per_group": (1, 1, 1, 1), "channels_per_group": (8, 8, 16, 16), "bottleneck": False}
        return hk.nets.ResNet(num_classes=8, **sizes)(x, is_training)

    return _with_state(classify, normal(4, 32, 32, 3), "batch y x rgb")


def mobilenet() -> Lifted:
    import haiku as hk

    def classify(x: Any, is_training: bool = False) -> Any:
        strides, channels = (1, 2, 1), (8, 16, 16)
        return hk.nets.MobileNetV1(strides, channels, num_classes=8)(x, is_training)

    return _with_state(classify, normal(4, 16, 16, 3), "batch y x rgb")


def quantizer() -> Lifted:
    import haiku as hk

    def quantize(x: Any) -> Any:
        found = hk.nets.VectorQuantizer(embedding_dim=8, num_embeddings=16, commitment_cost=0.25)(x, is_training=True)
        return found["quantize"], found["loss"]

    model = hk.transform(quantize)
    x = normal(8, 8)
    params = model.init(jax.random.key(0), x)

    def call(params: Any, x: Any) -> Any:
        return model.apply(params, None, x)

    return Lifted(call, (params, x), {"x": "batch width"}, {"batch": "data"})


def lstm() -> Lifted:
    import haiku as hk

    def unroll(x: Any) -> Any:
        core = hk.DeepRNN([hk.LSTM(8), jax.nn.relu, hk.LSTM(8)])
        return hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]

    return _stateless(unroll, normal(6, 4, 5), "time batch _")


def attention() -> Lifted:
    import haiku as hk

    def attend(x: Any) -> Any:
        return hk.MultiHeadAttention(4, 8, model_size=16, w_init=hk.initializers.VarianceScaling())(x, x, x)

    return _stateless(attend, normal(4, 6, 16), "batch seq _")


def graph_network() -> Lifted:
    import haiku as hk
    import jraph

    def network(nodes: Any, edges: Any, senders: Any, receivers: Any, shared: Any) -> Any:
        def update(width: int) -> Callable[..., Any]:
            return jraph.concatenated_args(hk.nets.MLP([16, width]))

        counts = jnp.array([nodes.shape[0]]), jnp.array([edges.shape[0]])
        graph = jraph.GraphsTuple(nodes, edges, receivers, senders, shared, *counts)
        step = jraph.GraphNetwork(update(4), update(8), update(4))
        found = step(graph)
        return found.nodes, found.globals

    model = hk.without_apply_rng(hk.transform(network))
    args = (normal(16, 6), normal(32, 4), tokens(32, vocab=16), tokens(32, vocab=16, seed=1), normal(1, 3))
    params = model.init(jax.random.key(0), *args)

    def call(params: Any, nodes: Any, edges: Any, senders: Any, receivers: Any, shared: Any) -> Any:
        return model.apply(params, nodes, edges, senders, receivers, shared)

    names = {"nodes": "node _", "edges": "edge _", "senders": "edge", "receivers": "edge"}
    return Lifted(call, (params, *args), names, {"edge": "data"})


def graph_convolution() -> Lifted:
    import jraph

    def convolve(weights: Any, nodes: Any, senders: Any, receivers: Any) -> Any:
        counts = jnp.array([nodes.shape[0]]), jnp.array([senders.shape[0]])
        graph = jraph.GraphsTuple(nodes, None, receivers, senders, None, *counts)
        step = jraph.GraphConvolution(lambda nodes: jax.nn.relu(nodes @ weights), add_self_edges=True)
        return step(graph).nodes

    args = (normal(6, 8), normal(16, 6), tokens(32, vocab=16), tokens(32, vocab=16, seed=1))
    names = {"nodes": "node feature", "senders": "edge", "receivers": "edge"}
    return Lifted(convolve, args, names, {"feature": "data"})


def _stateless(function: Callable[..., Any], x: Any, axes: str) -> Lifted:
    import haiku as hk

    model = hk.without_apply_rng(hk.transform(function))
    params = model.init(jax.random.key(0), x)

    def call(params: Any, x: Any) -> Any:
        return model.apply(params, x)

    return Lifted(call, (params, x), {"x": axes}, {"batch": "data"})


def _with_state(function: Callable[..., Any], x: Any, axes: str) -> Lifted:
    import haiku as hk

    model = hk.without_apply_rng(hk.transform_with_state(function))
    params, state = model.init(jax.random.key(0), x, True)

    def call(params: Any, state: Any, x: Any) -> Any:
        return model.apply(params, state, x)[0]

    return Lifted(call, (params, state, x), {"x": axes}, {"batch": "data"})


ENTRIES = (
    Entry("ResNet", "convolutions, batch norm", "dm-haiku", resnet),
    Entry("MobileNet", "depthwise convolutions", "dm-haiku", mobilenet),
    Entry("Vector quantizer", "VQ-VAE", "dm-haiku", quantizer),
    Entry("Two LSTMs", "recurrent", "dm-haiku", lstm),
    Entry("Attention", "attention", "dm-haiku", attention),
    Entry("Graph network", "graph neural network", "jraph", graph_network),
    Entry("Graph convolution", "graph neural network", "jraph", graph_convolution),
)
