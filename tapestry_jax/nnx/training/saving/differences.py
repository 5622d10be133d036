"""What differs between the arrays of a checkpoint and those of a trainer: all of it at once."""

from __future__ import annotations

from collections.abc import Mapping

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError


def check_same(what: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Compare names and types.

    Args:
      what: what holds those that are there.
      there: types by name.
      here: types by name, of the trainer.

    Raises:
      TrainingError: with every name that is in one alone, or has two types.
    """
    wrong = [f"{name}: {kind} there, not here" for name, kind in there.items() if name not in here]
    wrong += [f"{name}: {kind} here, not there" for name, kind in here.items() if name not in there]
    wrong += [
        f"{name}: {there[name]} there, {kind} here" for name, kind in here.items() if there.get(name, kind) != kind
    ]
    if wrong:
        remedy = "Make the trainer with the model, the optimizer and the options of then; or train into another folder."
        headline = f"{what} is not one of this model and this optimizer: {len(wrong)} arrays differ"
        raise TrainingError(message(headline, *wrong, remedy=remedy))
