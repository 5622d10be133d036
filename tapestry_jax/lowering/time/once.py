"""Derivatives that are called once for each cell, or are linear in what they pull back.

A cell that several turns of a loop compute, or neighbours behind a deep halo, or that blocks on both sides of a seam
read, gets a part of its cotangent each time. What derivatives make of the parts adds up to what they make of the whole
where they are linear, as all are that JAX knows. One that somebody wrote, such as `jnp.clip(g, -1, 1)`, need not be: to
differentiate such a program is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import PlanError, message
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import dim_of


def without_slopes(path: str, cuts: Mapping[str, Cut], blocks: list[Any], here: Here) -> list[Any]:
    """The blocks of an operation that computes its cells several times, whose derivative is an error.

    Args:
      path: of the operation.
      cuts: of its dimensions.
      blocks: of its operands.
      here: the device and turn.
    """
    own = {axis for cut in cuts.values() for axis in cut.axes}
    loops = [dim_of(axis) for axis in here.loops if axis not in own]
    if loops:
        why = f"its cells are computed in each turn over `{', '.join(loops)}`"
    elif any(cut.window is not None and cut.window.before + cut.window.after for cut in cuts.values()):
        why = "devices compute cells that are their neighbours', behind a deep halo"
    else:
        why = "cells at the seams are read through its windows by the blocks on both sides"
    error = PlanError(
        message(
            f"the derivative of `{path}` cannot be taken under this plan: somebody wrote it, and it is not linear",
            why,
            "it would be called several times, each time for a part of what it pulls back",
            remedy="Leave that loop, depth or cut out of the plan, or write a derivative that is linear.",
        )
    )
    return refusing(blocks, error)


def refusing(blocks: Sequence[Any], error: Exception) -> list[Any]:
    """The blocks, through which no derivative can be taken: that raises the error."""
    return [_without_slope(block, error) if jnp.issubdtype(block.dtype, jnp.inexact) else block for block in blocks]


def _without_slope(block: Any, error: Exception) -> Any:
    @jax.custom_jvp
    def same(block: Any) -> Any:
        return block

    @same.defjvp
    def _(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        raise error

    return same(block)
