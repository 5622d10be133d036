"""FlashAttention: a fold over `keys` with the softmax monoid, with `keys` in time.

Each device runs a loop over chunks of keys and carries the state of the softmax, so that the scores never exist as a
whole, forward or backward. With `queries` in time as well, a tile of them is all there is at once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attention(q, k, v):
    return tp.attention(q, k, v, causal=True)


def automatic(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(jnp.tri(*scores.shape[1:], dtype=bool), scores, -jnp.inf))
    return jnp.einsum("hqk,hke->hqe", weights, v)


def arrays(heads: int, seq: int, d: int):
    return tuple(normal(heads, seq, d, seed=seed) for seed in range(3))


def example(heads: int = 4, seq: int = 2048, d: int = 64, chunks: int = 8) -> Example:
    one = {"data": 1}
    plans = [
        Planned("FlashAttention", {"keys": tp.chunks(chunks)}, one),
        Planned("queries in time, too", {"queries": tp.chunks(chunks), "keys": tp.chunks(chunks)}, one),
        Planned("heads over a mesh axis", {"heads": "model", "keys": tp.chunks(chunks)}, {"model": heads}),
    ]
    return Example(attention, arrays(heads, seq, d), plans, automatic)


if __name__ == "__main__":
    show(example)
