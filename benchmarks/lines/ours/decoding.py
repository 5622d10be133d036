"""Tokens that follow prompts, the most probable ones, with a cache of keys and values whose heads lie over a mesh."""

from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, whole
from tapestry_jax.nnx.models import generate


def run():
    config = tp.nnx.TransformerConfig(layers=2, embed=16, heads=4, vocab=32, max_len=16)
    model, mesh = filled(tp.nnx.Transformer(config, rngs=nnx.Rngs(0))), tp.mesh(data=2, model=4)
    entries = {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}
    return generate(model, whole(4, 6, below=32), 8, plan=lambda graph: tp.plan(graph, mesh, entries))
