"""Operations that gather their operands themselves, once more in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from tapestry_jax.lowering.exchange.convert import convert
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.changes import Change

Gathers = Sequence[tuple[int, tuple[Change, ...]]]


def gathering(run: Callable[[list[Any]], list[Any]], gathers: Gathers, here: Here) -> Callable[[list[Any]], list[Any]]:
    """The function `run`, on operands of which some arrive as they are stored.

    Only what arrives is saved for the backward pass, which gathers again and, where the derivative needs what lies
    inside the operation, computes that again too.

    Args:
      run: from operands to results.
      gathers: place of an operand, and the changes that bring it together.
      here: the device.
    """

    def gathered(arrays: list[Any]) -> list[Any]:
        operands = list(arrays)
        for place, changes in gathers:
            operands[place] = convert(operands[place], changes, here, kept=False)
        return run(operands)

    # Inside a loop the two passes are two programs, which no compiler merges.
    return jax.checkpoint(gathered, prevent_cse=False)
