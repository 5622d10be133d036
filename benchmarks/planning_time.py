"""How long it takes to trace, plan and lower a transformer of 12 layers, before XLA compiles it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp
from benchmarks import plain
from benchmarks.models import PLANS, Sizes, model_loss
from benchmarks.row import Row
from benchmarks.timing import Once, once

FORWARD, GRADIENTS = 1.0, 2.0
SIZES = Sizes(layers=12, embed=64, heads=4, vocab=128, batch=8, seq=32)


def functions(sizes: Sizes = SIZES) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """For each direction what is timed: ours, and tracing and lowering the peer.

    Args:
      sizes: of the model; nothing is computed with them.
    """
    mesh = tp.mesh(data=2, model=4)
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)

    def planned() -> Any:
        return tp.plan(tp.trace(model_loss, module, tokens, tokens), mesh, PLANS["batch, heads, mlp"])

    structs = (nnx.state(module), tokens, tokens)
    # The lambdas are new functions each time, so that JAX remembers nothing of the round before.
    return {
        "forward": (
            lambda: planned().compile().lower(*structs),
            lambda: jax.jit(lambda *args: plain.loss(*args)).lower(*structs),
        ),
        "with gradients": (
            lambda: jax.jit(jax.value_and_grad(planned().compile())).lower(*structs),
            lambda: jax.jit(jax.value_and_grad(lambda *args: plain.loss(*args))).lower(*structs),
        ),
    }


def rows(rounds: int = 5) -> list[Row]:
    """Seconds of the first time and of later ones, when JAX and the library know the operations of a layer.

    Args:
      rounds: how often each is timed; of the later times the smallest counts.
    """
    found: list[Row] = []
    targets = {"forward": FORWARD, "with gradients": GRADIENTS}
    for direction, (ours, peer) in functions().items():
        times: list[list[Once]] = []
        for function in (ours, peer):
            jax.clear_caches()
            times.append([once(function) for _ in range(rounds)])
        case = f"trace + plan + lower, 12 layers, {direction}"
        for label, chosen in (("first", slice(1)), ("again", slice(1, None))):
            for clock in ("wall", "processor"):
                mine, theirs = (min(getattr(time, clock) for time in measured[chosen]) for measured in times)
                found.append(Row(f"{case}, {label}: {clock}", mine, theirs, "s", targets[direction], "value"))
    return found
