"""Fused linear cross-entropy: a map, then a log-sum-exp fold over `vocab`, with `vocab` in time as one region.

The matrix product that makes the logits and the folds that use them run in one loop: a chunk of logits is all there is
at once. Over a mesh axis instead it is Megatron's vocabulary-parallel loss; both together work as well.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


@tp.program("token embed, embed vocab, token -> ()")
def loss(x, head, targets):
    return tp.nnx.cross_entropy(matmul(x, head), targets)


def automatic(x, head, targets):
    logits = x @ head
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def example(token: int = 1024, embed: int = 128, vocab: int = 8192, chunks: int = 16) -> Example:
    targets = jax.random.randint(jax.random.key(2), (token,), 0, vocab)
    arguments = (normal(token, embed), normal(embed, vocab, seed=1, scale=embed**-0.5), targets)
    mesh = {"data": 2, "model": 4}
    plans = [
        Planned("fused linear cross-entropy", {"vocab": tp.chunks(chunks)}, {"data": 1}),
        Planned("vocabulary-parallel loss", {"token": "data", "vocab": "model"}, mesh),
        Planned("both", {"token": "data", "vocab": ("model", tp.chunks(chunks // 4))}, mesh),
    ]
    return Example(loss, arguments, plans, automatic)


if __name__ == "__main__":
    show(example)
