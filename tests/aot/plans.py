"""Plans beside the gallery whose collectives are held to both compilers: transformers, rings, stripes, scans, halos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp

TENSOR = {"batch": "data", "heads": "model", "mlp": "model"}


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attention(q, k, v):
    return tp.attention(q, k, v)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def causal(q, k, v):
    return tp.attention(q, k, v, causal=True)


@tp.program("t d -> t d, t d, t d")
def scans(x):
    sums = tp.Scan(tp.monoids.Sum, "t d -> t d", over="t")
    back = tp.Scan(tp.monoids.Sum, "t d -> t d", over="t", reverse=True, exclusive=True)
    return sums(x), back(x), tp.Scan(tp.monoids.Max, "t d -> t d", over="t", reverse=True)(x)


@tp.program("t d -> t d, t d")
def backwards(x):
    last = tp.Scan(tp.monoids.Max, "t d -> t d", over="t", reverse=True)
    return tp.Scan(tp.monoids.Sum, "t d -> t d", over="t", reverse=True)(x), last(x)


def wide(block):
    return block[:-4] - 2 * block[2:-2] + block[4:]


@tp.program("t -> t")
def windows(x):
    step = tp.Map(wide, "(t+[w]-2) -> t", sizes={"w": 5}, boundary="zero")
    return tp.iterate(step, 4)(x)


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def deep(x, up, down):
    linear = tp.einsum("b k, k n -> b n")

    def layer(x, up, down):
        return x + linear(tp.Map(jax.nn.gelu)(linear(x, up)), down)

    return tp.stack(layer, 4)(x, up, down)


@tp.program("rows n, n out -> rows out, rows")
def sums(x, w):
    matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
    return matmul(x, w), tp.Reduce(partial(jnp.sum, axis=1), "i k -> i", tp.monoids.Sum)(x)


@cache
def transformer(layers: int = 2, stacked: bool = False) -> Any:
    """The loss of a few layers."""
    config = tp.nnx.TransformerConfig(layers=layers, embed=16, heads=4, vocab=32, max_len=8, stacked=stacked)
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((4, 8), jnp.int32)
    return tp.trace(_loss, module, tokens, tokens)


def _loss(model: Any, tokens: Any, targets: Any) -> Any:
    return tp.nnx.cross_entropy(model(tokens), targets)


def _traced(program: Any, *shapes: tuple[int, ...]) -> Any:
    return tp.trace(program, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


def _planned(graph: Callable[[], Any], entries: Mapping[str, Any], mesh: Mapping[str, int] | None = None) -> Any:
    return lambda devices: tp.plan(graph(), tp.mesh(devices, **(mesh or {"data": 2, "model": 4})), entries)


def _fsdp(devices: Any) -> Any:
    return tp.fsdp(_planned(transformer, {"batch": "data"}, {"data": 8})(devices), "data", smallest=1)


def _two_axes(devices: Any) -> Any:
    """Stored over one of the two axes of the batch: gradients are scattered over it, and summed over the other."""
    return tp.fsdp(
        _planned(_stacked, {"batch": ("data", "model")}, {"data": 2, "model": 4})(devices), "model", smallest=1
    )


def _again(devices: Any) -> Any:
    """Stacked layers that are stored cut and computed again for the gradient."""
    plan = tp.plan(_stacked(), tp.mesh(devices, data=8), {"batch": "data"}, remat={"decoder": True})
    return tp.fsdp(plan, "data", smallest=1)


def _stacked() -> Any:
    return transformer(4, stacked=True)


def _attention() -> Any:
    return _traced(attention, *[(2, 32, 4)] * 3)


def _causal() -> Any:
    return _traced(causal, *[(2, 32, 4)] * 3)


def _scans() -> Any:
    return _traced(scans, (32, 4))


def _backwards() -> Any:
    return _traced(backwards, (32, 4))


def _windows() -> Any:
    return _traced(windows, (64,))


def _carried(devices: Any) -> Any:
    """Sums of a bfloat16 program in float32, which are sent as wide as they are carried."""
    kinds = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((8, 64), (64, 16)))
    return tp.plan(tp.trace(sums, *kinds), tp.mesh(devices, data=8), {"n": "data"}, accumulate=jnp.float32)


def _deep() -> Any:
    return _traced(deep, (16, 8), (4, 8, 16), (4, 16, 8))


LINE = {"data": 8}
PLANS: dict[str, Callable[[Any], Any]] = {
    "transformer, batch": _planned(transformer, {"batch": "data"}, LINE),
    "transformer, batch, heads, mlp": _planned(transformer, TENSOR),
    "transformer, batch, heads, mlp, vocab": _planned(transformer, TENSOR | {"vocab": "model"}),
    "transformer, FSDP": _fsdp,
    "transformer of stacked layers, batch over two axes, FSDP over one": _two_axes,
    "stack, pipeline of tensor-parallel layers": _planned(
        _deep, {"layer": "stage", "mlp": "model", "batch": tp.chunks(4)}, {"stage": 4, "model": 2}
    ),
    "transformer of stacked layers, FSDP, computed again": _again,
    "transformer of stacked layers, a pipeline with heads and mlp cut": _planned(
        _stacked,
        {"layer": "stage", "heads": "model", "mlp": "model", "batch": tp.chunks(4)},
        {"stage": 4, "model": 2},
    ),
    "ring": _planned(_attention, {"queries": "data", "keys": tp.ring("data")}, LINE),
    "ring, heads": _planned(_attention, {"queries": "model", "keys": tp.ring("model"), "heads": "data"}),
    "ring, causal, striped": _planned(_causal, {"queries": tp.striped("data"), "keys": tp.ring("data")}, LINE),
    "scans": _planned(_scans, {"t": "data"}, LINE),
    "scans backwards, in chunks": _planned(_backwards, {"t": ("model", tp.chunks(2)), "d": "data"}),
    "halos": _planned(_windows, {"t": "data"}, LINE),
    "sums carried in float32": _carried,
    "deep halos": _planned(_windows, {"t": ("data", tp.halo(depth=2))}, LINE),
}
