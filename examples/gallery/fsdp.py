"""ZeRO and FSDP: parameters stored over the mesh axis of the batch, which their operations use for something else.

Layers in a stack, each an MLP with a residual. Where a layer runs, its weights are gathered; their gradient is
reduce-scattered to where they are stored; nothing of them is kept from layer to layer. `tp.fsdp(plan, "data")` chooses
such layouts for all parameters of a plan; here they are written out.
"""

from __future__ import annotations

import jax
from gallery import Example, Planned, normal, show

import tapestry_jax as tp

gelu = tp.Map(jax.nn.gelu)
linear = tp.einsum("b k, k n -> b n")


@tp.program("batch embed, embed mlp, mlp out -> batch embed")
def layer(x, up, down):
    return x + linear(gelu(linear(x, up)), down).rename(out="embed")


@tp.program("batch embed, layer embed mlp, layer mlp out -> batch embed")
def deep(x, up, down):
    return tp.stack(layer, up.shape[0])(x, up, down)


def automatic(x, up, down):
    def turn(x, weights):
        up, down = weights
        return x + jax.nn.gelu(x @ up) @ down, None

    return jax.lax.scan(turn, x, (up, down))[0]


def example(batch: int = 1024, layers: int = 8, embed: int = 64, mlp: int = 256) -> Example:
    arguments = (
        normal(batch, embed),
        normal(layers, embed, mlp, seed=1, scale=embed**-0.5),
        normal(layers, mlp, embed, seed=2, scale=mlp**-0.5 / layers),
    )
    stored = {"up": {"mlp": "data"}, "down": {"mlp": "data"}}
    both = {"up": {"embed": "data", "mlp": "model"}, "down": {"mlp": "model", "out": "data"}}
    plans = [
        Planned("data parallelism", {"batch": "data"}),
        Planned("FSDP", {"batch": "data"}, options={"inputs": stored}),
        Planned(
            "FSDP and Megatron", {"batch": "data", "mlp": "model"}, {"data": 2, "model": 4}, options={"inputs": both}
        ),
    ]
    return Example(deep, arguments, plans, automatic)


if __name__ == "__main__":
    show(example)
