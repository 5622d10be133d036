"""What a worker does: a range of turns of a pass, from the identity on, committed to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from combinators.errors import message
from combinators.settings import under
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming.cluster.handed import Built, Handed, built
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.kept.partials import Partials
from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.feeding import Feed
from tapestry_jax.streaming.moving.placing import pieces_of, places_of
from tapestry_jax.streaming.split import Pass

OPERANDS = "operands"
"""The partial that the driver commits: what the pass reads on the devices."""


def run_range(handed: Handed, begin: int, stop: int) -> str:
    """Run some turns of a pass and commit what they come to, unless that was done.

    Returns:
      The name of the partial: a reference, and no numbers.
    """
    job, name = built(handed), f"turns-{begin}-{stop}"
    partials = Partials(Path(handed.folder), handed.key, handed.step)
    if partials.read(name) is None:
        operands = partials.read(OPERANDS)
        if operands is None:
            headline = f"what a pass of the job in {handed.folder} reads on the devices is not there"
            remedy = "Give workers the folder that the driver has."
            raise StreamError(message(headline, f"expected {partials.place / OPERANDS}", remedy=remedy))
        with under(handed.settings):
            partials.commit(name, _turned(job, operands, begin, stop))
    return name


def _turned(job: Built, given: Mapping[str, Array], begin: int, stop: int) -> dict[str, Array]:
    part, programs = job.split.parts[job.handed.part], job.programs
    assert isinstance(part, Pass)
    body, places, mesh = part.region.body, places_of(job.plan.mesh), programs.schedule.mesh
    slots = [body.slots[slot] for slot in body.inputs[: part.entering]]
    operands = [
        jax.device_put(given[f"operand/{number}"], programs.sharding(slot)) for number, slot in enumerate(slots)
    ]
    state, turn = programs.first(part)([]), programs.turn(part)
    counts = range(begin, stop)
    order = [part.turns - 1 - count if part.region.reverse else count for count in counts]
    # The turns before are other workers': nothing is merged with what this one begins with.
    begun = np.int32(order[0]), np.bool_(False)
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
