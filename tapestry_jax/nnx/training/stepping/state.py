"""Everything that a step of training changes."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["step", "params", "rest", "optimizer", "ema", "scale", "fault"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Arrays on the mesh, all in their true shapes.

    Attributes:
      step: how many steps were taken, int32 scalar.
      params: what the optimizer changes, an `nnx.State`.
      rest: the other variables of the model.
      optimizer: the state of the optimizer.
      ema: the exponential mean of the parameters; None where none is kept.
      scale: of the loss, a `LossScale`; None where it is not scaled.
      fault: of the first step whose numbers were none, where training stops there; see `finite`.
    """

    step: Any
    params: Any
    rest: Any
    optimizer: Any
    ema: Any
    scale: Any
    fault: Any
