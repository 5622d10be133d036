"""Programs that searches are tested on."""

from __future__ import annotations

import jax

import tapestry_jax as tp


def mlp(batch: int, embed: int, hidden: int, dtype: str = "float32") -> tp.Graph:
    """Two products with a nonlinearity between them."""
    up, down = tp.einsum("batch embed, embed mlp -> batch mlp"), tp.einsum("batch mlp, mlp out -> batch out")

    @tp.program("batch embed, embed mlp, mlp out -> batch out")
    def layer(x: tp.TensorType, w1: tp.TensorType, w2: tp.TensorType) -> tp.TensorType:
        return down(tp.Map(jax.nn.gelu)(up(x, w1)), w2)

    sizes = {"batch": batch, "embed": embed, "mlp": hidden, "out": embed}
    kinds = ("batch embed", "embed mlp", "mlp out")
    return tp.trace(layer, *(tp.TensorType({name: sizes[name] for name in kind.split()}, dtype) for kind in kinds))
