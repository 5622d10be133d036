"""What one process does for all of a run, such as to rename a folder; all know how it went."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from combinators.stored.json import read_json
from tapestry_jax.nnx.training.errors import TrainingError


def first_does(work: Callable[[], Any]) -> Any:
    """What `work` gives in the first process, as JSON says it; the others wait for it.

    Raises:
      TrainingError: in all of them where it does in the first one, since who went on would wait for ever.
    """
    if jax.process_count() == 1:
        return work()
    told: dict[str, Any] = {}
    cause: TrainingError | None = None
    if jax.process_index() == 0:
        try:
            told = {"found": work()}
        except TrainingError as error:
            told, cause = {"error": str(error)}, error
    told = _sent(told)
    if "error" in told:
        raise TrainingError(told["error"]) from cause
    return told["found"]


def _sent(told: dict[str, Any]) -> dict[str, Any]:
    """What the first process says, in all of them."""
    words = np.frombuffer(json.dumps(told).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(words.size)))
    # Few sizes: each is a program.
    padded = np.zeros(-(-size // _BYTES) * _BYTES, np.uint8)
    padded[: min(words.size, size)] = words[:size]
    sent = np.asarray(multihost_utils.broadcast_one_to_all(padded))
    return read_json(sent[:size].astype(np.uint8).tobytes().decode(), "what the first process says", any_text=True)


_BYTES = 4096
