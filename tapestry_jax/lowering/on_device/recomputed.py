"""What the backward pass computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from jax.ad_checkpoint import checkpoint_name

from tapestry_jax.lowering.on_device.varying import RECEIVED

Given = ParamSpec("Given")
Made = TypeVar("Made")


KEPT = "kept"


def kept(values: list[Any]) -> list[Any]:
    """The same values, marked as what the plan wants to keep of a turn that is computed again."""
    return jax.tree.map(lambda value: checkpoint_name(value, KEPT), values)


def recomputed(turn: Callable[Given, Made], *, in_loop: bool = True, keeps: bool = False) -> Callable[Given, Made]:
    """A turn of a loop whose backward pass computes it again from its operands.

    What was received from other devices is kept: computing again must not send again.

    Args:
      turn: from operands to results.
      in_loop: inside a loop the two passes are two programs, which no compiler merges.
      keeps: whether values marked as `kept` are not computed again either.
    """
    policy: Any = jax.checkpoint_policies.save_only_these_names(RECEIVED, *[KEPT] * keeps)
    return jax.checkpoint(turn, prevent_cse=not in_loop, policy=policy)
