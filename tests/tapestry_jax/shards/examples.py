"""Small plans of every kind, and their sharded graphs; each is made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.shards.sharded_graph import ShardedGraph
from tests.pairs.kernels import ORDERED, Affine

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def abstract_mesh(**sizes: int) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def smooth(x: Any) -> Any:
    return x[1:-1] + 0.25 * (x[2:] - x[:-2])


step = tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="zero", name="step")
around = tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="periodic", name="around")


def linear(x: Any, w: Any, b: Any) -> Any:
    return x @ w + b


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def mlp(x: Any, up: Any, down: Any) -> Any:
    return matmul(tp.Map(jax.nn.gelu)(matmul(x, up)), down)


@tp.program("layer embed mlp, layer mlp embed, batch embed -> batch embed")
def layers(ups: Any, downs: Any, x: Any) -> Any:
    def layer(x: Any, up: Any, down: Any) -> Any:
        return mlp(x, up, down) + x

    return tp.stack(tp.program(layer), 4)(x, ups, downs)


def types(*listed: dict[str, int]) -> list[Any]:
    return [tp.TensorType(each, jnp.float32) for each in listed]


def _mlp(**sizes: int) -> tp.Graph:
    known = {"batch": 8, "embed": 4, "mlp": 12, **sizes}
    x, up = {k: known[k] for k in ("batch", "embed")}, {k: known[k] for k in ("embed", "mlp")}
    return tp.trace(mlp, *types(x, up, {k: known[k] for k in ("mlp", "embed")}))


def _layers() -> tp.Graph:
    up, down = {"layer": 4, "embed": 4, "mlp": 6}, {"layer": 4, "mlp": 6, "embed": 4}
    return tp.trace(layers, *types(up, down, {"batch": 8, "embed": 4}))


def _attention(over: str = "keys") -> tp.Graph:
    return tp.trace(
        tp.attention, *types({"q": 8, "h": 2, "d": 2}, {over: 8, "h": 2, "d": 2}, {over: 8, "h": 2, "e": 3})
    )


def _iterated(of: Any, steps: int = 5, y: int = 24) -> tp.Graph:
    return tp.trace(tp.program(lambda u: tp.iterate(of, steps)(u)), *types({"y": y, "x": 3}))


def _recurrence(time: int = 10) -> tp.Graph:
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t f, t f -> t f", over="t", present=_second)
    return tp.trace(scan, *types({"t": time, "f": 2}, {"t": time, "f": 2}))


def _ordered(time: int = 12) -> tp.Graph:
    return tp.trace(tp.Reduce(Affine(0), "t f -> f", ORDERED, present=_second), *types({"t": time, "f": 2}))


def _second(state: Any) -> Any:
    return state[1]


PLANS: dict[str, Callable[[], tp.Plan]] = {
    "megatron": lambda: tp.plan(_mlp(), tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"}),
    "uneven": lambda: tp.plan(_mlp(batch=7, mlp=10), tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"}),
    "scattered": lambda: tp.plan(_mlp(embed=8), tp.mesh(data=8), {"mlp": "data"}, outputs={"y": {"batch": "data"}}),
    "chunks": lambda: tp.plan(_mlp(), tp.mesh(data=2), {"batch": ("data", tp.chunks(2)), "mlp": tp.chunks(3)}),
    "fsdp": lambda: tp.fsdp(
        tp.plan(_layers(), tp.mesh(data=2, model=2), {"batch": "data", "mlp": "model"}), "data", smallest=1
    ),
    "pipeline": lambda: tp.plan(_layers(), tp.mesh(stage=2), {"layer": "stage", "batch": tp.chunks(4)}),
    "ring": lambda: tp.plan(_attention(), tp.mesh(data=4), {"q": "data", "keys": tp.ring("data")}),
    "striped": lambda: tp.plan(_attention(), tp.mesh(data=4), {"q": tp.striped("data"), "keys": tp.ring("data")}),
    "halo": lambda: tp.plan(_iterated(step), tp.mesh(data=4), {"y": "data"}),
    "deep": lambda: tp.plan(_iterated(step), tp.mesh(data=4), {"y": ("data", tp.halo(depth=2))}),
    "periodic": lambda: tp.plan(_iterated(around), tp.mesh(data=4), {"y": ("data", tp.halo(depth=2))}),
    "scan": lambda: tp.plan(_recurrence(), tp.mesh(data=4), {"t": ("data", tp.chunks(2))}),
    "ordered": lambda: tp.plan(_ordered(), tp.mesh(data=2), {"t": ("data", tp.chunks(2))}),
}


@cache
def plan_of(name: str) -> tp.Plan:
    """One of the plans."""
    return PLANS[name]()


@cache
def shards_of(name: str) -> ShardedGraph:
    """Its sharded graph."""
    return plan_of(name).shards()
