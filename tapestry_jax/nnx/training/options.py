"""What a trainer is told, read; anything else is told in our words."""

from __future__ import annotations

from typing import Any

import optax
from flax import nnx

from combinators.arguments import read_number
from combinators.errors import message, spelt
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.precision import Precision
from tapestry_jax.nnx.training.stepping.scaling import FIRST, LossScale
from tapestry_jax.nnx.training.stepping.step import Nan


def read_optimizer(optimizer: Any, clip: Any) -> Any:
    """An optimizer of optax, behind clipping by the global norm where that is wanted.

    Raises:
      TrainingError: for anything else.
    """
    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        details = (
            "expected one of optax, such as optax.adamw(3e-4)",
            f"got {type(optimizer).__name__}: {spelt(optimizer)}",
        )
        remedy = "Pass what it returns, called on its learning rate."
        raise TrainingError(message("a trainer was given no optimizer", *details, remedy=remedy))
    if clip is None:
        return optimizer
    norm = read_number(clip, "clip= of a trainer", TrainingError)
    if norm <= 0:
        remedy = "Pass the largest global norm of the gradients, such as 1.0."
        raise TrainingError(message("clip= of a trainer is no norm", f"got {clip!r}", remedy=remedy))
    return optax.chain(optax.clip_by_global_norm(norm), optimizer)


def read_share(ema: Any) -> float | None:
    """How much an exponential mean keeps.

    Raises:
      TrainingError: for what is no number from 0 to below 1.
    """
    if ema is None:
        return None
    share = read_number(ema, "ema= of a trainer", TrainingError)
    if not 0 <= share < 1:
        remedy = "Pass how much of the mean a step keeps, such as 0.999."
        raise TrainingError(message("ema= of a trainer is no share", f"got {ema!r}", remedy=remedy))
    return share


def read_nan(nan: Any) -> Nan:
    """What is done where numbers are not finite.

    Raises:
      TrainingError: for anything else.
    """
    if nan is None or (isinstance(nan, str) and nan in ("stop", "skip")):
        return nan
    remedy = 'Write nan="stop", nan="skip" or nan=None.'
    raise TrainingError(message("nan= of a trainer is not what it should be", f"got {spelt(nan)}", remedy=remedy))


def read_filter(wrt: Any) -> Any:
    """Which variables are trained.

    Raises:
      TrainingError: for what is no filter of `flax.nnx`.
    """
    try:
        nnx.filterlib.to_predicate(wrt)
    except (TypeError, ValueError) as error:
        details = ("expected a filter of flax.nnx", f"got {type(wrt).__name__}: {spelt(wrt)}")
        remedy = "Name a class of variables, such as wrt=nnx.Param."
        raise TrainingError(message("wrt= of a trainer is not what it should be", *details, remedy=remedy)) from error
    return wrt


def read_scale(first: Any, precision: Precision) -> LossScale | None:
    """What the loss is multiplied by, where it is.

    Raises:
      TrainingError: for what is no number from 1 on.
    """
    if first is None:
        return LossScale.of(FIRST) if precision.scales else None
    scale = read_number(first, "loss_scale= of a trainer", TrainingError)
    if scale < 1:
        remedy = "Pass what the loss is multiplied by at first, such as 2.0**15."
        raise TrainingError(message("loss_scale= of a trainer is below 1", f"got {first!r}", remedy=remedy))
    return LossScale.of(scale)
