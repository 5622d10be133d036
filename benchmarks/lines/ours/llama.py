"""A Llama block, four of them, trained with a pipeline of four stages and parameters stored over the batch's axis."""

import optax
from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, normal


class Block(tp.nnx.Residual):
    def __init__(self, rngs):
        self.attention_norm, self.mlp_norm = (tp.nnx.RMSNorm(16, rngs=rngs) for _ in range(2))
        heads = {"num_key_value_heads": 2, "rotary_base": 1e4, "use_bias": False}
        self.attention = tp.nnx.MultiHeadAttention(4, 16, **heads, rngs=rngs)
        self.mlp = tp.nnx.SwiGLU(16, 32, rngs=rngs)


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)


def run():
    model, x, y = filled(tp.nnx.Stack.of(Block, 4, rngs=nnx.Rngs(0))), normal(8, 6, 16), normal(8, 6, 16, seed=1)
    types = tp.TensorType({"batch": 8, "seq": 6, "embed": 16})
    entries = {"layer": "model", "batch": ("data", tp.chunks(4))}
    plan = tp.plan(tp.trace(loss, model, types, types), tp.mesh(data=2, model=4), entries)
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), tp.fsdp(plan, "data", smallest=64))
    return [trainer.step(x, y)["loss"] for _ in range(3)]
