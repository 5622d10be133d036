"""What the backward pass computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

from tapestry_jax.lowering.on_device.varying import RECEIVED

Given = ParamSpec("Given")
Made = TypeVar("Made")


def recomputed(turn: Callable[Given, Made], *, in_loop: bool = True) -> Callable[Given, Made]:
    """A turn of a loop whose backward pass computes it again from its operands.

    What was received from other devices is kept: computing again must not send again.

    Args:
      turn: from operands to results.
      in_loop: inside a loop the two passes are two programs, which no compiler merges.
    """
    policy: Any = jax.checkpoint_policies.save_only_these_names(RECEIVED)
    return jax.checkpoint(turn, prevent_cse=not in_loop, policy=policy)
