"""Plans with every item that an entry may hold, of graphs with the kernels of the layers, to be read by later releases.

`python -m tests.tapestry_jax.stored_plans > tests/tapestry_jax/data/plans_N.json` writes them as a new version.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp

TOKENS = jax.ShapeDtypeStruct((4, 6), jnp.int32)


def plans() -> dict[str, tp.Plan]:
    """Plans by name."""
    return {"language": _language(), "around": _around(), "steps": _steps()}


def _language() -> tp.Plan:
    """A language model and its loss: layouts asked for, exceptions, padded storage, carriers and platforms."""
    model = tp.nnx.Transformer(tp.nnx.TransformerConfig(layers=1, embed=8, heads=2, vocab=10), rngs=nnx.Rngs(0))

    def loss(model: Any, tokens: Any, targets: Any) -> Any:
        return tp.nnx.cross_entropy(model(tokens), targets)

    named = (tp.TensorType({"batch": 4, "seq": 6}, jnp.int32),) * 2
    graph = tp.trace(loss, model, *named)
    names = [node.name for node in graph.inputs if node.name.endswith("head/kernel")]
    return tp.plan(
        graph,
        tp.mesh(data=2, model=4),
        {"batch": ("data", tp.chunks(2)), "mlp": "model", "vocab": ("model", tp.chunks(size=2))},
        ops={"decoder/0/mlp/down": {"mlp": None}},
        inputs={names[0]: {"vocab": tp.padded("model")}} if names else None,
        accumulate={"": jnp.float32},
        platforms=("cpu", "cuda"),
    )


def _around() -> tp.Plan:
    """Attention whose keys go round, queries and keys in stripes."""
    q, k, v = ({"q": 8, "h": 2, "d": 2}, {"keys": 8, "h": 2, "d": 2}, {"keys": 8, "h": 2, "e": 3})
    graph = tp.trace(tp.attention, *map(tp.TensorType, (q, k, v)))
    entries = {"keys": (tp.ring("model"), tp.chunks(2)), "q": (tp.striped("model"), tp.chunks(2)), "h": "data"}
    return tp.plan(graph, tp.mesh(data=2, model=4), entries, outputs={"y": {"h": "data"}})


def _steps() -> tp.Plan:
    """An iteration, one exchange for two turns."""
    step = tp.window(tp.aggregators.Sum(), 3, "t -> t")
    graph = tp.trace(tp.program(lambda field: tp.iterate(step, 5)(field)), tp.TensorType({"t": 24}))
    return tp.plan(graph, tp.mesh(data=8), {"t": ("data", tp.halo(depth=2))})


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    found = {name: {"graph": plan.graph.to_json(), "plan": plan.to_json()} for name, plan in plans().items()}
    print(json.dumps(found, separators=(",", ":")))
