"""What of a run is stored beside its arrays: how far it is, where its batches were, and what users add."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError

_NOTED = 2
"""So many places are known: whether numbers are finite is seen a step late, and the steps behind are taken back."""


def is_resumable(batches: Any) -> bool:
    """Whether batches say where they are, and go there: iterators of Grain do, and others that have its two methods."""
    return callable(getattr(batches, "get_state", None)) and callable(getattr(batches, "set_state", None))


def place_in(batches: Any) -> Any:
    """Where batches are, as JSON can say it.

    Raises:
      TrainingError: when it cannot.
    """
    try:
        place = batches.get_state()
    except Exception as error:
        details = (f"{type(batches).__name__}.get_state: {type(error).__name__}: {error}"[:200],)
        remedy = "Let get_state tell where the next batch is, at any time."
        raise TrainingError(message("where the batches are cannot be stored", *details, remedy=remedy)) from error
    if isinstance(place, bytes):
        return {"bytes": base64.b64encode(place).decode()}
    try:
        return {"json": json.loads(json.dumps(place))}
    except (TypeError, ValueError) as error:
        details = (f"get_state gives {type(place).__name__}: {error}"[:200],)
        remedy = "Give bytes, or what JSON can say."
        raise TrainingError(message("where the batches are cannot be stored", *details, remedy=remedy)) from error


class Places:
    """Where the batches of one call of `fit` were, before and behind its last steps.

    Args:
      batches: what `fit` was given; None, or what does not say where it is, has no places.
      known: places by step, of a checkpoint.
    """

    def __init__(self, batches: Any = None, known: Mapping[int, Any] | None = None) -> None:
        self._batches, self._noted = batches if is_resumable(batches) else None, dict[int, Any](known or {})

    def taking(self, step: int) -> None:
        """Note where batches are before the one behind `step` is taken: who takes it may be interrupted, or stopped."""
        if self._batches is None:
            return
        before = [(at, place) for at, place in self._noted.items() if at < step]
        self._noted = dict(before[1 - _NOTED :])
        # What cannot tell it yet may tell it when it is asked for.
        with suppress(TrainingError):
            self._noted[step] = place_in(self._batches)

    def at(self, step: int) -> Any:
        """The place at a step: the one that was noted, or where batches are now; None where there is none.

        Raises:
          TrainingError: where it cannot be stored.
        """
        if step in self._noted or self._batches is None:
            return self._noted.get(step)
        return place_in(self._batches)


def check_record(record: Any) -> None:
    """What users add can be stored.

    Raises:
      TrainingError: listing all that JSON cannot say.
    """
    parts: dict[Any, Any] = record if isinstance(record, dict) else {"": record}
    wrong = [f"`{name}`: {error}"[:200] for name, part in parts.items() if (error := _unsaid(part))]
    wrong += [f"expected a dictionary, got {type(record).__name__}" for _ in range(not isinstance(record, dict))]
    if wrong:
        remedy = "Keep numbers of Python, texts, lists and dictionaries: float(x), array.tolist()."
        raise TrainingError(message("trainer.record holds what no checkpoint can", *wrong, remedy=remedy))


def _unsaid(part: Any) -> str:
    try:
        json.dumps(part)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def go_on(batches: Any, place: Any) -> None:
    """Bring batches to where they were.

    Raises:
      TrainingError: when they have no such place, as those of another data set.
    """
    if not is_resumable(batches):
        details = f"got {type(batches).__name__}, which has no set_state"
        raise TrainingError(message(_LOST, details, remedy=_SAME))
    try:
        batches.set_state(base64.b64decode(place["bytes"]) if "bytes" in place else place["json"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        details = f"{type(batches).__name__}.set_state: {type(error).__name__}: {error}"[:1000].splitlines()
        raise TrainingError(message(_LOST, *details, remedy=_SAME)) from error


_LOST = "the batches cannot go to where those of the checkpoint were"
_SAME = "Pass an iterator of the kind with which the checkpoint was written."
