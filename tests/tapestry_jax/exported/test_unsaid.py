"""What no `PartitionSpec` says of a plan is listed, each kind."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp

MESH = AbstractMesh((2, 2), ("data", "model"))
X = tp.TensorType({"batch": 8, "embed": 8})
layer = tp.program("batch embed, embed mid, mid embed -> batch embed")(
    lambda x, up, down: x + tp.einsum("b m, m e -> b e")(tp.Map(jnp.tanh)(tp.einsum("b e, e m -> b m")(x, up)), down)
)
STACKED = tp.TensorType({"layer": 4, "embed": 8, "mid": 8}), tp.TensorType({"layer": 4, "mid": 8, "embed": 8})
step = tp.Map(lambda x: x[:-2] + x[2:], "(y+[dy]-1) -> y", boundary="periodic", sizes={"dy": 3}, name="step")


def layers(**options):
    graph = tp.trace(tp.stack(layer, 4, over="layer"), X, *STACKED)
    return tp.plan(graph, MESH, options.pop("entries"), **options)


def attention(entries):
    queries, keys = (tp.TensorType({"heads": 2, name: 16, "e": 4}) for name in ("q", "keys"))
    return tp.plan(tp.trace(lambda q, k, v: tp.attention(q, k, v, over="keys"), queries, keys, keys), MESH, entries)


def running():
    graph = tp.trace(
        tp.einsum("b e, e m -> b m"),
        tp.TensorType({"b": 8, "e": 8}, jnp.bfloat16),
        tp.TensorType({"e": 8, "m": 4}, jnp.bfloat16),
    )
    return tp.plan(graph, MESH, {"e": "data"}, accumulate=jnp.float32)


CASES = {
    "chunks": lambda: attention({"q": "data", "keys": tp.chunks(4)}),
    "ring": lambda: attention({"q": "data", "keys": tp.ring("data")}),
    "stripes": lambda: attention({"q": tp.striped("data"), "keys": tp.ring("data")}),
    "stages": lambda: layers(entries={"layer": "model", "batch": tp.chunks(4)}),
    "remat": lambda: layers(entries={"batch": "data"}, remat=True),
    "accumulate": running,
    "halo": lambda: tp.plan(
        tp.trace(tp.iterate(step, 4), tp.TensorType({"y": 16})), MESH, {"y": ("data", tp.halo(depth=2))}
    ),
}


@pytest.mark.parametrize("kind", list(CASES))
def test_unsaid_lists_every_kind(kind):
    found = CASES[kind]().partition_specs().unsaid
    assert kind in [each.kind for each in found]
    assert len(set(found)) == len(found)


def test_unsaid_is_empty_where_dimensions_lie_on_devices_alone():
    assert layers(entries={"batch": "data", "mid": "model"}).partition_specs().unsaid == ()
    assert attention({"q": "data", "heads": "model"}).partition_specs().unsaid == ()
