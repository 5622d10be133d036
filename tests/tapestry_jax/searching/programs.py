"""Programs that searches are tested on."""

from __future__ import annotations

from typing import Any

import jax

import tapestry_jax as tp

GELU = tp.Map(jax.nn.gelu)


def mlp(batch: int, embed: int, hidden: int, dtype: str = "float32") -> tp.Graph:
    """Two products with a nonlinearity between them."""
    up, down = tp.einsum("batch embed, embed mlp -> batch mlp"), tp.einsum("batch mlp, mlp out -> batch out")

    @tp.program("batch embed, embed mlp, mlp out -> batch out")
    def layer(x: tp.TensorType, w1: tp.TensorType, w2: tp.TensorType) -> tp.TensorType:
        return down(GELU(up(x, w1)), w2)

    sizes = {"batch": batch, "embed": embed, "mlp": hidden, "out": embed}
    kinds = ("batch embed", "embed mlp", "mlp out")
    return tp.trace(layer, *(tp.TensorType({name: sizes[name] for name in kind.split()}, dtype) for kind in kinds))


def residual(x: tp.TensorType, up: tp.TensorType, down: tp.TensorType, between: Any = GELU) -> tp.TensorType:
    """A layer of two products and what goes around them."""
    hidden = between(tp.einsum("batch embed, embed mlp -> batch mlp")(x, up))
    return x + tp.einsum("batch mlp, mlp embed -> batch embed")(hidden, down)


def layers(count: int, batch: int, embed: int) -> tp.Graph:
    """A stack of such layers."""
    up = tp.TensorType({"layer": count, "embed": embed, "mlp": 4 * embed}, "bfloat16")
    down = tp.TensorType({"layer": count, "mlp": 4 * embed, "embed": embed}, "bfloat16")
    x = tp.TensorType({"batch": batch, "embed": embed}, "bfloat16")
    return tp.trace(lambda x, up, down: tp.stack(residual, count)(x, up, down), x, up, down)


def apart(count: int, batch: int, embed: int, hidden: int, between: Any = GELU) -> tp.Graph:
    """The same layers, one by one: each with parameters of its own, in a scope with a number."""

    @tp.program("batch embed, embed mlp, mlp embed -> batch embed")
    def layer(x: tp.TensorType, up: tp.TensorType, down: tp.TensorType) -> tp.TensorType:
        return residual(x, up, down, between)

    def deep(x: tp.TensorType, *own: tuple[tp.TensorType, tp.TensorType]) -> tp.TensorType:
        for up, down in own:
            x = layer(x, up, down)
        return x

    up = tp.TensorType({"embed": embed, "mlp": hidden}, "bfloat16")
    down = tp.TensorType({"mlp": hidden, "embed": embed}, "bfloat16")
    x = tp.TensorType({"batch": batch, "embed": embed}, "bfloat16")
    return tp.trace(deep, x, *[(up, down)] * count)
