"""Sinks are those that a job has begun: while it was stopped, another one may have begun its own in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from combinators.errors import message
from tapestry_jax.storage.protocols import Array, Sink
from tapestry_jax.storage.unfinished.filled import Filled
from tapestry_jax.storage.unfinished.partial import Draft, filled_place, remove
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.kept.origins import origins
from tapestry_jax.streaming.parts import Split

_PREFIX = "sink/"


def named_sinks(split: Split, sinks: Mapping[int, Sequence[Sink]]) -> Iterator[tuple[str, Sink]]:
    """Sinks by names that another plan of the same graph knows as well."""
    names = origins(split)
    for slot, several in sinks.items():
        yield from ((f"{names[slot]}/{number}", sink) for number, sink in enumerate(several))


def begun_sinks(split: Split, sinks: Mapping[int, Sequence[Sink]], known: Mapping[str, Array]) -> dict[str, Array]:
    """What tells the sinks of a job from others in the same places, for its states; it stays beside those that end.

    A state names the sinks of passes that are still to come as well, which nobody flushes before it is written.

    Args:
      split: of the job.
      sinks: of values that passes make, by slot.
      known: the arrays of the state that is gone on from; sinks of which it says nothing are flushed.

    Raises:
      FormatError: where one cannot be flushed: a state must not name what a kill would lose.
    """
    found = dict[str, Array]()
    for own, sink in named_sinks(split, sinks):
        draft, filled = getattr(sink, "draft", None), getattr(sink, "filled", None)
        if isinstance(draft, Draft):
            draft.leaves_filled = True
        name = f"{_PREFIX}{own}"
        if isinstance(filled, Filled):
            found[name] = np.frombuffer(filled.token.encode(), np.uint8)
            if name not in known:
                sink.flush()
            filled.is_own = np.array_equal(known.get(name, ()), found[name])
    return found


def check_begun(folder: Path, before: Mapping[str, Array], now: Mapping[str, Array]) -> dict[str, Array]:
    """Raise where a sink is not the one that the job has begun.

    Args:
      folder: of the job.
      before: the arrays of its state; those of earlier releases say nothing of sinks.
      now: what `begun_sinks` gives for the sinks that are there.

    Returns:
      The other arrays of the state.

    Raises:
      StreamError: for cells that another job has written.
    """
    if any(not np.array_equal(before[name], now[name]) for name in now if name in before):
        headline = f"another job has begun a sink of the one in {folder} anew since that was stopped"
        told = "or it has finished, and the state that says so is damaged"
        remedy = "Compute it again: name another folder, and a place that nothing else writes to."
        raise StreamError(message(headline, told, remedy=remedy))
    return {name: array for name, array in before.items() if not name.startswith(_PREFIX)}


def forget_sinks(sinks: Mapping[int, Sequence[Sink]]) -> None:
    """Remove what was left beside sinks that are in their places: the job has noted that."""
    for sink in (each for several in sinks.values() for each in several):
        draft = getattr(sink, "draft", None)
        if isinstance(draft, Draft):
            remove(filled_place(draft.path))
