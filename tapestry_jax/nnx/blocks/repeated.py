"""Blocks of one structure: one after the other, or as one `Stack`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flax import nnx

from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.stack import Stack


def make_blocks(
    make: Callable[[nnx.Rngs], Any], layers: int, *, stacked: bool, rngs: nnx.Rngs
) -> nnx.List[Any] | Stack:
    """Make them. The same `rngs` give the same weights, stacked or not.

    Args:
      make: a block, initialised from the random numbers that it is given.
      layers: how many.
      stacked: whether they are one `Stack`.
      rngs: what the blocks draw from.
    """
    if stacked:
        return Stack.of(make, layers, rngs=rngs)
    return nnx.List([make(rngs) for _ in range(layers)])


def run_blocks(blocks: nnx.List[Any] | Stack, x: Value) -> Value:
    """Apply them one after the other."""
    for block in [blocks] if isinstance(blocks, Stack) else blocks:
        x = block(x)
    return x
