"""Programs whose plans cut in time: chunks, rings and stripes of one device, scans, layers computed again, halos."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.gpu.held import assert_alike, assert_planned, both, normal

pytestmark = pytest.mark.gpu

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
linear = tp.einsum("b k, k n -> b n")
gelu = tp.Map(jax.nn.gelu)


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def mlp(x, up, down):
    return linear(gelu(linear(x, up)), down)


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def deep(x, up, down):
    return tp.stack(lambda x, up, down: x + linear(gelu(linear(x, up)), down), 4)(x, up, down)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attention(q, k, v):
    return tp.attention(q, k, v)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def causal(q, k, v):
    return tp.attention(q, k, v, causal=True)


@tp.program("token embed, embed vocab, token -> ()")
def cross_entropy(x, w, targets):
    return tp.nnx.cross_entropy(matmul(x, w), targets)


@tp.program("t d, t d -> t d, t d")
def scans(decay, x):
    hidden = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=lambda state: state[1])
    return hidden(tp.Map(jax.nn.sigmoid)(decay), x), tp.Scan(tp.monoids.Max, "t d -> t d", over="t")(x)


@tp.program("t d -> t d, t d")
def backwards(x):
    sums = tp.Scan(tp.monoids.Sum, "t d -> t d", over="t", reverse=True, exclusive=True)
    return sums(x), tp.Scan(tp.monoids.Max, "t d -> t d", over="t", reverse=True)(x)


@tp.program("row col -> col, col, col")
def statistics(x):
    found = tp.fold(tp.aggregators.Moments(4), "row col -> col")(x)
    return found["mean"], found["kurtosis"], tp.fold(tp.aggregators.LogSumExp(), "row col -> col")(x)


@tp.program("y x -> y x")
def transformed(image):
    rows = tp.Map(lambda x: jnp.fft.fft(x), "y [x] -> y [x]")
    return tp.Map(jnp.abs)(rows(image))


def _diffused(block: Any) -> Any:
    inner = block[1:-1, 1:-1]
    return inner + 0.1 * (block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:] - 4 * inner)


def heat(boundary: str) -> Any:
    step = tp.Map(_diffused, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary=boundary)

    @tp.program("y x -> y x")
    def program(u):
        return tp.iterate(step, 6)(u)

    return program


def _valid(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@tp.program("b y x c, [dy] [dx] c o -> b y x o")
def convolved(x, w):
    conv = tp.Reduce(_valid, "b (y+[dy]-1) (x+[dx]-1) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum, boundary="zero")
    return tp.nnx.max_pool(gelu(conv(x, w)), (2, 2), (2, 2))


MLP = normal(24, 16), normal(16, 32, scale=0.2), normal(32, 16, scale=0.2)
DEEP = normal(24, 16), normal(4, 16, 32, scale=0.2), normal(4, 32, 16, scale=0.2)
HEADS = normal(4, 64, 32), normal(4, 96, 32, seed=1), normal(4, 96, 16, seed=2)
SAME = normal(4, 64, 32), normal(4, 64, 32, seed=1), normal(4, 64, 16, seed=2)
TOKENS = normal(48, 32), normal(32, 100, scale=0.2), (normal(48) * 40).astype("int32") % 100
SERIES = normal(200, 6), normal(200, 6, seed=1)
ROWS = normal(96, 5) + 3
IMAGES = normal(3, 20, 14, 4), normal(3, 3, 4, 6, scale=0.3)
CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "mlp, nothing cut": (mlp, MLP, {}, {}),
    "mlp, axes of one device": (mlp, MLP, {"batch": "data", "mlp": "model"}, {}),
    "mlp, batch in chunks": (mlp, MLP, {"batch": ("data", tp.chunks(5))}, {}),
    "mlp, hidden units in chunks": (mlp, MLP, {"mlp": tp.chunks(3)}, {}),
    "mlp, both in chunks": (mlp, MLP, {"batch": tp.chunks(3), "mlp": tp.chunks(size=7)}, {}),
    "mlp, a ring": (mlp, MLP, {"batch": "data", "mlp": tp.ring("data")}, {}),
    "layers": (deep, DEEP, {"batch": "data"}, {}),
    "layers, computed again": (deep, DEEP, {"batch": ("data", tp.chunks(2))}, {"remat": True}),
    "layers, products kept": (deep, DEEP, {"batch": "data"}, {"remat": "dots"}),
    "layers, a pipeline of one stage": (deep, DEEP, {"layer": "model", "batch": tp.chunks(4)}, {}),
    "attention": (attention, HEADS, {"heads": "model"}, {}),
    "attention, keys in chunks": (attention, HEADS, {"keys": tp.chunks(7)}, {}),
    "attention, queries and keys in chunks": (attention, HEADS, {"queries": tp.chunks(3), "keys": tp.chunks(4)}, {}),
    "attention, a ring": (attention, HEADS, {"queries": "data", "keys": (tp.ring("data"), tp.chunks(2))}, {}),
    "causal attention, keys in chunks": (causal, SAME, {"keys": tp.chunks(4)}, {}),
    "causal attention, stripes": (causal, SAME, {"queries": tp.striped("data"), "keys": tp.ring("data")}, {}),
    "cross-entropy, words in chunks": (cross_entropy, TOKENS, {"vocab": tp.chunks(8)}, {}),
    "cross-entropy, both in chunks": (cross_entropy, TOKENS, {"token": tp.chunks(3), "vocab": tp.chunks(4)}, {}),
    "scans": (scans, SERIES, {"t": "data"}, {}),
    "scans in chunks": (scans, SERIES, {"t": ("data", tp.chunks(7))}, {}),
    "scans backwards, in chunks": (backwards, SERIES[:1], {"t": tp.chunks(7)}, {}),
    "statistics in chunks": (statistics, (ROWS,), {"row": tp.chunks(5)}, {}),
    "transforms in chunks": (transformed, (normal(12, 40),), {"y": tp.chunks(4)}, {}),
    "heat, zero": (heat("zero"), (normal(24, 10),), {"y": ("data", tp.halo(depth=3))}, {}),
    "heat, periodic": (heat("periodic"), (normal(24, 10),), {"y": "data", "x": "model"}, {}),
    "heat, reflected": (heat("reflect"), (normal(24, 10),), {"y": "data"}, {}),
    "convolution and pooling": (convolved, IMAGES, {"b": "data", "y": "model"}, {}),
    "convolution in chunks of rows": (convolved, IMAGES, {"y": tp.chunks(5)}, {}),
    "convolution in chunks of features": (convolved, IMAGES, {"c": tp.chunks(2), "o": tp.chunks(3)}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_planned_is_unplanned(name: str, mesh: Any) -> None:
    program, args, entries, options = CASES[name]
    assert_planned(program, args, mesh, entries, **options)


def test_parameters_stored_in_pieces_of_one_device(mesh: Any) -> None:
    graph = tp.trace(deep, *DEEP)
    plan = tp.fsdp(tp.plan(graph, mesh, {"batch": "data"}), "data", smallest=1)
    plan.verify()
    assert_alike(both(plan.compile(), *plan.put(*DEEP)), both(graph, *DEEP), 2e-5, "FSDP")
