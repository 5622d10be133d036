"""What of a run is stored beside its arrays: how far it is, where its batches were, and what users add."""

from __future__ import annotations

import base64
import json
from typing import Any

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError


def is_resumable(batches: Any) -> bool:
    """Whether batches say where they are, and go there: iterators of Grain do, and others that have its two methods."""
    return callable(getattr(batches, "get_state", None)) and callable(getattr(batches, "set_state", None))


def place_in(batches: Any) -> Any:
    """Where batches are, as JSON can say it.

    Raises:
      TrainingError: when it cannot.
    """
    place = batches.get_state()
    if isinstance(place, bytes):
        return {"bytes": base64.b64encode(place).decode()}
    try:
        return {"json": json.loads(json.dumps(place))}
    except (TypeError, ValueError) as error:
        details = (f"get_state gives {type(place).__name__}: {error}"[:200],)
        remedy = "Give bytes, or what JSON can say."
        raise TrainingError(message("where the batches are cannot be stored", *details, remedy=remedy)) from error


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
