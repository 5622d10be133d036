"""One warm trace of 12 layers beside Flax's own split and trace: `python -m benchmarks.flax_trace`.

Processor time of the thread: nothing is lowered or compiled.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp
from benchmarks import flax_models
from benchmarks.machine import machine
from benchmarks.models import Sizes
from benchmarks.row import Row, table

TARGET = 1.3
SIZES = Sizes(layers=12, embed=64, heads=4, vocab=128, batch=8, seq=32)


def functions(sizes: Sizes = SIZES) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Our trace to a graph, and Flax's to a jaxpr: of the same model, without arrays.

    Args:
      sizes: of the model.
    """
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    ours = nnx.eval_shape(lambda: tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    with nnx.use_eager_sharding(False):
        theirs = nnx.eval_shape(lambda: flax_models.Transformer(sizes.config, rngs=nnx.Rngs(0)))

    def flax() -> Any:
        graphdef, state = nnx.split(theirs)
        # A new function each time, so that JAX remembers nothing of the round before.
        return jax.jit(lambda state, tokens: nnx.merge(graphdef, state)(tokens)).trace(state, tokens)

    return lambda: tp.trace(ours, tokens), flax


def rows(rounds: int = 15, sizes: Sizes = SIZES) -> list[Row]:
    """Milliseconds of the later times: what the process learns at the first is not counted.

    Args:
      rounds: turns that both have; the median is taken.
      sizes: of the model.
    """
    both = functions(sizes)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 2):
        for spent, function in zip(times, both, strict=True):
            began = time.thread_time()
            function()
            if turn >= 2:
                spent.append(time.thread_time() - began)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    ours, theirs = (1e3 * statistics.median(spent) for spent in times)
    return [Row(f"trace, {sizes.layers} layers, warm", ours, theirs, "ms", TARGET, compared=ratio)]


if __name__ == "__main__":
    print(machine(), table(rows()), sep="\n\n")
    sys.exit()
