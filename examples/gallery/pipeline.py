"""Pipeline parallelism: an arrow repeated over stacked layers, with `layer` over a mesh axis and `batch` in time.

Each device holds a stage: some of the layers. Microbatches enter one after the other and are handed on from stage to
stage; the turns in which a stage has nothing to do are the bubble that the plan shows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def layer(x, up, down):
    return x + matmul(gelu(matmul(x, up)), down)


def network(layers: int):
    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
    def run(x, up, down):
        return tp.stack(layer, layers)(x, up, down)

    return run


def automatic(x, up, down):
    def one(x, weights):
        return x + jax.nn.gelu(x @ weights[0]) @ weights[1], None

    return jax.lax.scan(one, x, (up, down))[0]


def example(layers: int = 8, batch: int = 1024, embed: int = 128, mlp: int = 256, microbatches: int = 8) -> Example:
    arguments = (
        normal(batch, embed),
        normal(layers, embed, mlp, seed=1, scale=embed**-0.5),
        normal(layers, mlp, embed, seed=2, scale=mlp**-0.5),
    )
    plans = [
        Planned("pipeline", {"layer": "stage", "batch": tp.chunks(microbatches)}, {"stage": 4}),
        Planned(
            "pipeline and data parallelism",
            {"layer": "stage", "batch": ("data", tp.chunks(microbatches))},
            {"data": 2, "stage": 4},
        ),
    ]
    return Example(network(layers), arguments, plans, automatic)


if __name__ == "__main__":
    show(example)
