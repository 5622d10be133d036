"""Megatron tensor parallelism: two folds in a row, with `heads` and `mlp` over a mesh axis.

A transformer block without its norms. The projections before attention, and the first layer of the MLP, make their
share of heads and hidden units; the fold after each ends in one all-reduce. The gradient of what came in takes one
more.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp

gelu = tp.Map(jax.nn.gelu)
project = tp.einsum("b s k, k h d -> b s h d")
merge = tp.einsum("b s h d, h d k -> b s k")
linear = tp.einsum("b s k, k n -> b s n")


@tp.program("batch seq k, k heads d, k heads d, k heads d, heads d k, k mlp, mlp k -> batch seq k")
def block(x, query, key, value, out, up, down):
    over = x.rename(seq="keys")
    x = x + merge(tp.attention(project(x, query), project(over, key), project(over, value), causal=True), out)
    return x + linear(gelu(linear(x, up)), down)


def automatic(x, query, key, value, out, up, down):
    q, k, v = (jnp.einsum("bsk,khd->bshd", x, w) for w in (query, key, value))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -jnp.inf))
    x = x + jnp.einsum("bhqk,bkhd,hdm->bqm", weights, v, out, optimize=[(0, 1), (0, 1)])
    return x + jax.nn.gelu(x @ up) @ down


def example(batch: int = 8, seq: int = 128, embed: int = 128, heads: int = 4, mlp: int = 512) -> Example:
    d = embed // heads
    arguments = (
        normal(batch, seq, embed),
        *(normal(embed, heads, d, seed=seed, scale=embed**-0.5) for seed in (1, 2, 3)),
        normal(heads, d, embed, seed=4, scale=embed**-0.5),
        normal(embed, mlp, seed=5, scale=embed**-0.5),
        normal(mlp, embed, seed=6, scale=mlp**-0.5),
    )
    mesh = {"data": 2, "model": 4}
    plans = [
        Planned("Megatron", {"heads": "model", "mlp": "model"}, mesh),
        Planned("Megatron and data parallelism", {"batch": "data", "heads": "model", "mlp": "model"}, mesh),
    ]
    return Example(block, arguments, plans, automatic)


if __name__ == "__main__":
    show(example)
