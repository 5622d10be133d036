"""Numbers that are none: which of a step's came first, and what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError


def first_fault(loss: Any, gradients: Any, updates: Any) -> Any:
    """Where a step first gave infinity or NaN.

    Returns:
      Two int32: whether the loss did; and counted from 1, the first that did of the gradients by each parameter, and
      then of what each is changed by, 0 where none did.
    """
    leaves = [*jax.tree.leaves(gradients), *jax.tree.leaves(updates)]
    wrong = jnp.stack([jnp.zeros((), bool), *(~jnp.isfinite(leaf).all() for leaf in leaves)])
    return jnp.stack([~jnp.isfinite(loss), jnp.argmax(wrong)]).astype(jnp.int32)


def described(fault: np.ndarray, paths: Sequence[str]) -> list[str]:
    """What `first_fault` found, in words.

    Args:
      fault: its two numbers.
      paths: of the parameters.
    """
    loss, at = int(fault[0]), int(fault[1]) - 1
    told = ["the loss is not finite"] if loss else []
    if 0 <= at < len(paths):
        told.append(
            f"the first gradient that is not is by `{paths[at]}`"
            if loss
            else f"the gradient by `{paths[at]}` is not finite"
        )
    elif at >= 0:
        told.append(f"the update of `{paths[at - len(paths)]}` is not finite")
    return told


def stopped(step: int, told: Sequence[str], batch: Sequence[str]) -> TrainingError:
    """The error of a run that stops at a step.

    Args:
      step: its number.
      told: what was not finite, as `described`.
      batch: what is wrong with the batch, in words; nothing where nothing is.
    """
    remedy = "Mend the batches" if batch else "Lower the learning rate, clip gradients (clip=1.0)"
    return TrainingError(
        message(
            f"step {step}: {told[0]}",
            *batch[:_SHOWN],
            *told[1:],
            f"the trainer stands before step {step}, with the parameters of then",
            remedy=f'{remedy}, or leave such steps out: nan="skip".',
        )
    )


def evaluated(numbers: Sequence[int], batch: Sequence[str]) -> str:
    """What is said of an evaluation whose loss is no number.

    Args:
      numbers: of the batches of which it is not finite, counted from 1.
      batch: what is wrong with the first of them, in words; nothing where nothing is.
    """
    listed = ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")
    what = f"batch {listed}" if len(numbers) == 1 else f"{len(numbers)} batches ({listed})"
    of = f"of batch {numbers[0]}: " if len(numbers) > 1 else ""
    remedy = "Mend the batches." if batch else "Look at the parameters and at the batch; trainer.model is as it was."
    return message(
        f"trainer.evaluate: the loss of {what} is not finite, so that of all is not",
        *(of + it for it in batch[:_SHOWN]),
        remedy=remedy,
    )


_SHOWN = 4
