"""Data parallelism and gradient accumulation: a map over `batch`, with `batch` over a mesh axis, in time, or both.

The loss of an MLP is written for a batch of any size. Each device takes its share; the gradients of the parameters,
which every device has, are summed once a step. In time it takes one chunk after the other, and holds the activations of
one; the sum over the devices still comes once, after the loop.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
mean = tp.fold(tp.aggregators.Mean(), "batch out -> ()")


@tp.program("batch embed, batch out, embed mlp, mlp out -> ()")
def loss(x, y, w1, w2):
    error = matmul(gelu(matmul(x, w1)), w2) - y
    return mean(error * error)


def automatic(x, y, w1, w2):
    return jnp.mean((jax.nn.gelu(x @ w1) @ w2 - y) ** 2)


def example(batch: int = 4096, embed: int = 128, mlp: int = 512, chunks: int = 8) -> Example:
    arguments = (
        normal(batch, embed),
        normal(batch, embed, seed=1),
        normal(embed, mlp, seed=2, scale=embed**-0.5),
        normal(mlp, embed, seed=3, scale=mlp**-0.5),
    )
    plans = [
        Planned("data parallelism", {"batch": "data"}),
        Planned("gradient accumulation", {"batch": tp.chunks(chunks)}, {"data": 1}),
        Planned("both", {"batch": ("data", tp.chunks(chunks))}),
    ]
    return Example(loss, arguments, plans, automatic)


if __name__ == "__main__":
    show(example)
