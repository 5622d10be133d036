"""The models that are measured, and the plans of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp
from benchmarks import plain

PLANS: dict[str, dict[str, Any]] = {
    "batch": {"batch": "data"},
    "batch, heads, mlp": {"batch": "data", "heads": "model", "mlp": "model"},
    "batch, heads, mlp, vocab": {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"},
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a transformer and of what it is given; stacked layers are in bfloat16."""

    layers: int = 1
    embed: int = 256
    heads: int = 8
    vocab: int = 512
    batch: int = 4
    seq: int = 128
    stacked: bool = False
    config: Any = field(init=False)

    def __post_init__(self) -> None:
        config = tp.nnx.TransformerConfig(
            layers=self.layers,
            embed=self.embed,
            heads=self.heads,
            vocab=self.vocab,
            max_len=self.seq,
            param_dtype=jnp.bfloat16 if self.stacked else jnp.float32,
            stacked=self.stacked,
        )
        object.__setattr__(self, "config", config)


def layer(name: str, sizes: Sizes) -> tuple[Any, Any, tuple[Any, ...]]:
    """One layer: the traced graph, its peer, and their arguments.

    Args:
      name: `mlp` or `block`.
      sizes: of the layer.
    """
    rngs = nnx.Rngs(0)
    module: Any = (
        tp.nnx.MLP(sizes.embed, sizes.config.hidden, rngs=rngs)
        if name == "mlp"
        else tp.nnx.Block(sizes.config, rngs=rngs)
    )
    x = jax.random.normal(jax.random.key(0), (sizes.batch, sizes.seq, sizes.embed))
    return tp.trace(module, x), getattr(plain, name), (nnx.state(module), x)


def model_loss(model: Any, tokens: Any, targets: Any) -> Any:
    """The mean cross-entropy of the next tokens."""
    return tp.nnx.cross_entropy(model(tokens), targets)


def language_model(sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """A transformer with its loss: the module, and parameters, tokens and targets."""
    module = tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(0), (sizes.batch, sizes.seq), 0, sizes.vocab)
    return module, (nnx.state(module), tokens, jnp.roll(tokens, -1, 1))


def with_gradients(function: Any) -> Any:
    """The function together with its gradients by all arguments, for results as cotangents."""

    def run(*args: Any) -> Any:
        result, pull = jax.vjp(function, *args)
        return result, pull(result)

    return run


def training_step(loss: Any) -> Any:
    """A step of gradient descent: parameters, tokens and targets to the loss and new parameters."""

    def step(state: Any, tokens: Any, targets: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(state, tokens, targets)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, state, gradients)

    return step
