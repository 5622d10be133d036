"""`tp.search` gives plans that are proved and fit, and keeps what was fixed."""

from __future__ import annotations

import jax
from jax.sharding import AbstractMesh

import tapestry_jax as tp

MESH = AbstractMesh((2,), ("data",))


def mlp(batch: int, embed: int, hidden: int) -> tp.Graph:
    up, down = tp.einsum("b e, e h -> b h"), tp.einsum("b h, h e -> b e")

    @tp.program("b e, e h, h e -> b e")
    def layer(x: tp.TensorType, w1: tp.TensorType, w2: tp.TensorType) -> tp.TensorType:
        return down(tp.Map(jax.nn.gelu)(up(x, w1)), w2)

    sizes = {"b": batch, "e": embed, "h": hidden}
    return tp.trace(
        layer, *(tp.TensorType({name: sizes[name] for name in names.split()}) for names in ("b e", "e h", "h e"))
    )


def test_a_plan_found_is_cheaper_than_none_and_proved():
    graph = mlp(8192, 1024, 4096)
    plan = tp.search(graph, MESH, "H100", entries={"e": None}, remat=False)
    assert plan.cost("H100").seconds < tp.plan(graph, MESH).cost("H100").seconds
    assert dict(plan.entries)["b"] == ("data",)
    assert plan.gap == 0.0
