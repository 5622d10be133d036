"""What a worker does: a range of turns of a pass, from the identity on, committed to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from combinators.errors import message
from combinators.settings import under
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming.cluster.handed import Built, Handed, built
from tapestry_jax.streaming.cluster.totals import Totals, read_before, state_of, totals_in
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.kept.partials import Partials
from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.feeding import Feed
from tapestry_jax.streaming.moving.placing import pieces_of, places_of
from tapestry_jax.streaming.parts import Pass
from tapestry_jax.streaming.turn import Programs

T = TypeVar("T")

OPERANDS = "operands"
"""The partial that the driver commits: what the pass reads on the devices, and what older rows have come to."""


def run_range(handed: Handed, begin: int, stop: int, number: int | None = None) -> str:
    """Run some turns of a pass and commit what they come to, unless that was done.

    Args:
      handed: the pass.
      begin: the first of the turns, in the order in which they run.
      stop: behind the last one.
      number: of the round that finds totals of scans; None for all that the pass makes.

    Returns:
      The name of the partial: a reference, and no numbers.
    """
    job, name = built(handed), turned_name(begin, stop, number)
    partials = Partials(Path(handed.folder), handed.key, handed.step)
    if partials.read(name) is None:
        operands = _given(partials, OPERANDS, partials.read(OPERANDS))
        with under(handed.settings):
            number = len(job.rounds) - 1 if number is None else number
            before = _given(partials, f"before turn {begin}", read_before(partials, number, begin))
            partials.commit(name, _turned(job, *job.rounds[number], operands, before, begin, stop))
    return name


def turned_name(begin: int, stop: int, number: int | None = None) -> str:
    """What the partial of a range is called, or that of a round."""
    return f"turns-{begin}-{stop}" if number is None else f"totals-{number}-{begin}-{stop}"


def _given(partials: Partials, name: str, found: T | None) -> T:
    if found is None:
        headline = f"what a pass of the job in {partials.folder} reads on the devices is not there"
        remedy = "Give workers the folder that the driver has."
        raise StreamError(message(headline, f"expected {partials.place / name}", remedy=remedy))
    return found


def _turned(
    job: Built, part: Pass, programs: Programs, given: Mapping[str, Array], before: Totals, begin: int, stop: int
) -> dict[str, Array]:
    body, places, mesh = part.region.body, places_of(job.plan.mesh), programs.schedule.mesh
    slots = [body.slots[slot] for slot in body.inputs[: part.entering]]
    operands = [
        jax.device_put(given[f"operand/{number}"], programs.sharding(slot)) for number, slot in enumerate(slots)
    ]
    counts = range(begin, stop)
    order = [part.turns - 1 - count if part.region.reverse else count for count in counts]
    older = _older(job, part, programs, given) if not begin else None
    state = _put(part, programs, older or state_of(part, programs.first(part)([]), before))
    # The turns before are other workers': folds merge nothing with what this one begins with, and scans begin with
    # nothing in the turn that is named. Behind older rows they do so in none.
    begun = np.int32(-1 if older else order[0]), np.bool_(bool(older))
    turn = programs.turn(part)
    found, still = dict[str, Array](), list[Any]()
    with Feed(part, programs, places, job.stored, order, job.handed.ahead, Meter()) as feed:
        for at in order:
            state, made, still, is_done = turn(state, operands, feed.take(), np.int32(at), *begun)
            feed.taken_by(is_done)
            for number, (each, array) in enumerate(zip(part.made, made, strict=True)):
                for _, piece in pieces_of(array, body.slots[each.slot], mesh, places, {part.region.axis: at}):
                    found[f"made/{number}/{at}"] = np.array(piece)
    found |= {f"state/{leaf}": np.array(array) for leaf, array in enumerate(state)}
    return found | {f"still/{number}": np.array(array) for number, array in enumerate(still)}


def _older(job: Built, part: Pass, programs: Programs, given: Mapping[str, Array]) -> Sequence[Any] | None:
    """What older rows have come to, as a pass carries it, or a round of it; None where there are none."""
    older = [given[f"older/{leaf}"] for leaf in range(sum(name.startswith("older/") for name in given))]
    if not older or part is job.part:
        return older or None
    return state_of(part, programs.first(part)([]), totals_in(job.part, older))


def _put(part: Pass, programs: Programs, state: Sequence[Any]) -> list[Any]:
    slots = [part.region.body.slots[slot] for slot in part.region.body.outputs[: len(state)]]
    return [jax.device_put(leaf, programs.sharding(slot)) for leaf, slot in zip(state, slots, strict=True)]
