"""Whether rows that arrive can feed a stream: read in one pass, in order, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from combinators.errors import PlanError, message
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.moving.arriving import Arriving
from tapestry_jax.streaming.moving.placing import views_of
from tapestry_jax.streaming.moving.views import View
from tapestry_jax.streaming.parts import Pass, Split
from tapestry_jax.streaming.turn import as_read


def check_in_order(split: Split, sources: Sequence[Stored], places: Mapping[Any, Mapping[str, int]]) -> None:
    """Refuse a program that reads rows which arrive again, backwards, or around a turn.

    Raises:
      PlanError: naming the input, and why.
    """
    for number, source in enumerate(sources):
        why = _why_not(split, number, places) if isinstance(source, Arriving) and number in split.stored else None
        if why is not None:
            name = split.schedule.graph.inputs[number].name
            remedy = "Give it a folder, checkpoint=: there the rows are stored first. Or write them to a file."
            raise PlanError(message(f"the rows of `{name}` arrive in order, once", why, remedy=remedy))


def _why_not(split: Split, number: int, places: Mapping[Any, Mapping[str, int]]) -> str | None:
    slot = split.schedule.inputs[number]
    reads = [(part, piece) for part in split.passes for piece in part.pieces if piece.value == slot]
    if len({id(part) for part, _ in reads}) > 1:
        return f"the program reads them in {len(reads)} passes"
    part, piece = reads[0]
    if part.region.reverse:
        return f"`{part.region.path}` goes backwards"
    if len(reads) > 1:
        return f"`{part.region.path}` reads them {len(reads)} times in a turn, in other pieces each time"
    if not _consecutive(part, part.region.body.slots[piece.slot], split, places):
        return f"`{part.region.path}` reads pieces that are not whole rows, one behind the other"
    return None


def _consecutive(part: Pass, slot: Slot, split: Split, places: Mapping[Any, Mapping[str, int]]) -> bool:
    cell, shape = 0, slot.type.shape
    for wanted in _wanted(part, slot, split, places):
        rows, *others = wanted
        whole = all((each.start, each.stop) == (0, size) for each, size in zip(others, shape[1:], strict=True))
        if rows.start != cell or not whole or rows.mode != "edge":
            return False
        cell = rows.stop
    return True


def _wanted(part: Pass, slot: Slot, split: Split, places: Mapping[Any, Mapping[str, int]]) -> Iterator[View]:
    # Later turns differ from the second in where they begin alone.
    for turn in range(min(2, part.turns)):
        yield from views_of(as_read(slot), split.schedule.mesh, places, {part.region.axis: turn})
