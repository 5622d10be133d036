"""A few turns of every pass of a job, whose results go nowhere: how fast it would be."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.storage.protocols import NOTHING, Array, Beside, Box, Names
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.feeding import shapes_of
from tapestry_jax.streaming.moving.placing import places_of
from tapestry_jax.streaming.moving.spilling import Spill
from tapestry_jax.streaming.parts import Pass
from tapestry_jax.streaming.running import Runner


class Nowhere:
    """A sink that keeps nothing, and reads as zeros."""

    def __init__(self, kind: Any) -> None:
        self.shape, self.dtype, self.chunks = kind.shape, kind.dtype, kind.shape
        self.names: Names | None = None
        self.where = "nowhere"

    def write(self, box: Box, array: Array) -> Future[None]:
        """Forget a box."""
        del box, array
        return _done()

    def read(self, box: Box, into: Array) -> Future[None]:
        """Fill with zeros."""
        del box
        into[...] = 0
        return _done()

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """Nothing is read."""
        del sizes
        return NOTHING

    def flush(self) -> None:
        """Nothing was written."""

    def finish(self) -> Nowhere:
        """Itself, to be read."""
        return self

    def fingerprint(self) -> str:
        """Always the same."""
        return "nowhere"

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, eq=False)
class Trial(Runner):
    """A runner of the first turns of every pass.

    Attributes:
      few: how many.
    """

    few: int = 2

    def order(self, part: Pass, done: int) -> list[int]:
        """The first turns, of those that are left."""
        return super().order(part, done)[: self.few]


def cells_a_second(job: Job, amount: int) -> float:
    """Cells of the streamed dimension that a job takes in a second, over a few turns of each of its passes.

    Nothing is written, kept or shown: the sinks and the folder of the job are not touched.

    Args:
      job: its programs are compiled before.
      amount: bytes that the turns of a pass read together, at least; two turns in any case.
    """
    job.plan()
    places = places_of(job.planned.mesh)
    own = [sum(shape.bytes for shape in shapes_of(part, job.programs, places)) for part in job.split.passes]
    few = max(2, -(-amount // max(1, min(own, default=1))))
    slots = job.split.schedule.slots
    sinks: dict[int, Any] = {slot: [Nowhere(slots[slot].type)] for slot in job.outputs.filled}
    spill = Spill(lambda slot, _: [Nowhere(slots[slot].type)], lambda _: None)
    meter = Meter()
    limits = job.ahead, job.behind
    Trial(job.split, job.planned.mesh, job.sources, sinks, spill, *limits, job.programs, few=few).run(meter)
    meter.ended()
    cells = sum(min(few, part.turns) * part.block for part in job.split.passes)
    return cells / max(meter.metrics().seconds, 1e-9)


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
