"""Plans whose pages are tested: small ones of every kind, for no devices."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.report.page.document import Told, document

MESH = AbstractMesh((2, 4), ("data", "model"))
HOSTILE = '</script><img src=x onerror="document.title=1">'
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)


def struct(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


@cache
def mlp() -> Any:
    @tp.program("batch embed, embed mlp, mlp out -> batch out")
    def mlp(x, up, down):
        return matmul(gelu(matmul(x, up)), down)

    return tp.plan(
        tp.trace(mlp, struct(32, 64), struct(64, 256), struct(256, 64)), MESH, {"batch": "data", "mlp": "model"}
    )


@cache
def gathered() -> Any:
    return tp.fsdp(mlp(), "data")


@cache
def network() -> Any:
    def layer(x, up, down):
        return x + matmul(gelu(matmul(x, up)), down)

    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
    def network(x, up, down):
        return tp.stack(layer, 4)(x, up, down)

    return tp.trace(network, struct(16, 8), struct(4, 8, 32), struct(4, 32, 8))


@cache
def pipeline() -> Any:
    return tp.plan(network(), MESH, {"layer": "model", "batch": ("data", tp.chunks(4))})


@cache
def layers() -> Any:
    """Parameters of a loop that are stored over the batch axis, and gathered where a layer reads them."""
    return tp.fsdp(tp.plan(network(), MESH, {"batch": "data", "mlp": "model"}), "data", smallest=1)


@cache
def twice() -> Any:
    """Two operands of one operation that are gathered, and a result that is sliced."""
    stored = {"x": {"batch": "data"}, "up": {"embed": "data"}}
    return tp.plan(mlp().graph, MESH, {"mlp": "model"}, inputs=stored, outputs={"y": {"out": "model"}})


@cache
def ring() -> Any:
    @tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
    def attention(q, k, v):
        return tp.attention(q, k, v)

    return tp.plan(tp.trace(attention, *[struct(2, 16, 4)] * 3), MESH, {"queries": "model", "keys": tp.ring("model")})


@cache
def halo() -> Any:
    @tp.program("y -> y")
    def heat(u):
        blur = tp.Map(lambda rows: rows[:-2] + rows[2:], "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary="periodic")
        return tp.iterate(blur, 8)(u)

    return tp.plan(tp.trace(heat, struct(64)), MESH, {"y": ("model", tp.halo(depth=4))})


@cache
def transformer() -> Any:
    """Twelve layers, one by one: names of parameters sort as 0, 1, 10, 11, 2."""
    config = tp.nnx.TransformerConfig(layers=12, embed=16, heads=4, vocab=32)
    model = nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))
    graph = tp.trace(model, jax.ShapeDtypeStruct((4, 8), jnp.int32))
    return tp.plan(graph, MESH, {"batch": "data", "mlp": "model", "heads": "model"})


@cache
def empty() -> Any:
    return tp.plan(tp.trace(lambda x: x, tp.TensorType({"n": 8})), MESH, {})


@cache
def long() -> Any:
    def sines(x):
        for _ in range(250):
            x = tp.Map(jnp.sin)(x)
        return x

    return tp.plan(tp.trace(sines, tp.TensorType({"n": 8})), MESH, {"n": "data"})


@cache
def hostile() -> Any:
    """Names that would be markup, scripts, quotes and other alphabets if anybody let them."""
    kind = tp.TensorType({"größe": 8})
    names = (HOSTILE, "<!--<script>", "ключ \"q\" 's' `${1}` \u2028", "&amp;\\")
    return tp.plan(tp.trace(lambda given: sum(given.values()), dict.fromkeys(names, kind)), MESH, {"größe": "data"})


EVERY = [mlp, gathered, pipeline, ring, halo, layers, twice, transformer, empty, hostile]


@cache
def told(make: Any, grad: bool = False) -> Any:
    """The document of one of these plans; not to be changed."""
    return document(make().graph, make().schedule, Told(grad=grad))
