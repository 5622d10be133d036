"""What a schedule becomes whose streamed loops the host turns: passes over what is stored, and what stands between."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.time_axis import dim_of, turns_of
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule


@dataclass(frozen=True)
class Piece:
    """What a turn reads of a stored value: the cells that its slot in the body holds, wherever they lie.

    Attributes:
      slot: of the body.
      value: the slot of the schedule that the stored value has first.
    """

    slot: int
    value: int


@dataclass(frozen=True)
class Made:
    """What a turn makes: an output of the body, and the slot of the schedule that it becomes."""

    slot: int
    value: int


@dataclass(frozen=True)
class Pass:
    """A loop that the host turns.

    Attributes:
      region: the loop; its body lacks the slices of what is stored, its operands are those on the device alone.
      pieces: what its turns read.
      made: what its turns write, piece by piece.
      still: likewise what every turn makes the same.
      entering: how many of its operands are no first totals of scans.
      anew: the nodes of scans that begin with nothing in whatever turn runs first.
    """

    region: Region
    pieces: tuple[Piece, ...]
    made: tuple[Made, ...]
    still: tuple[Made, ...]
    entering: int
    anew: frozenset[int] = frozenset()

    @property
    def turns(self) -> int:
        """How often it turns."""
        return turns_of(self.region.axis)

    @property
    def dim(self) -> str:
        """The streamed dimension."""
        return dim_of(self.region.axis)

    @property
    def block(self) -> int:
        """The cells of the dimension that a device takes in a turn."""
        return next(blocks(self.region.body, self.region.axis), 1)


@dataclass(frozen=True)
class Between:
    """Steps on the device, between passes.

    Attributes:
      part: the steps; its inputs are the slots that they read, its outputs those that are read later.
      scope: the repetitions around them, each with the number of the turn; "" outside of all.
    """

    part: Schedule
    scope: str = ""


@dataclass(frozen=True)
class Ending:
    """Where a repetition may end, before one of its turns; behind the last one it does.

    Attributes:
      flag: the slot of the condition, on the device; None behind the last turn.
      results: what is handed on if it ends: pairs of the slot that it has here and of that which is read later.
      behind: the number of the part behind the repetition.
      path: of the repetition.
      scope: the repetitions around it, each with the number of the turn; "" outside of all.
    """

    flag: int | None
    results: tuple[tuple[int, int], ...]
    behind: int
    path: str
    scope: str = ""


Part = Pass | Between | Ending


@dataclass(frozen=True)
class Split:
    """A schedule whose streamed loops are turned by the host.

    Attributes:
      schedule: all of it, repetitions around streamed loops written out.
      parts: in order.
      stored: the inputs that are read piece by piece, by position.
      outputs: for each output its slot: of a stored value the one that it has first.
      spilled: values that a pass makes, and another reads.
    """

    schedule: Schedule
    parts: tuple[Part, ...]
    stored: tuple[int, ...]
    outputs: tuple[int, ...]
    spilled: tuple[int, ...]

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The loops."""
        return tuple(part for part in self.parts if isinstance(part, Pass))

    @property
    def written(self) -> tuple[int, ...]:
        """The slots of all values that passes make piece by piece."""
        return tuple(made.value for part in self.passes for made in part.made)

    @property
    def kept(self) -> tuple[int, ...]:
        """Those of them that are no outputs: a later pass reads them, and nobody behind it."""
        return tuple(slot for slot in self.written if slot not in {*self.outputs})

    @cached_property
    def last_use(self) -> Mapping[int, int]:
        """The number of the last part that reads a slot, on the devices or stored; of outputs that behind all parts."""
        found = dict[int, int]()
        for number, part in enumerate(self.parts):
            found |= dict.fromkeys(read_by(part), number)
        return found | dict.fromkeys(self.outputs, len(self.parts))

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """What was found out about it, by whoever asks for it often."""
        return {}


def made_on_devices(part: Part) -> set[int]:
    """The slots that are on the devices behind a part, and were not before."""
    match part:
        case Pass():
            return {*part.region.results}
        case Ending():
            return {later for _, later in part.results}
        case Between():
            return {*part.part.outputs}


def read_by(part: Part) -> set[int]:
    """The slots that a part reads, on the devices or stored."""
    if isinstance(part, Ending):
        return {now for now, _ in part.results} | ({part.flag} if part.flag is not None else set())
    if isinstance(part, Between):
        return {*part.part.inputs}
    return {*part.region.operands} | {piece.value for piece in part.pieces}


def blocks(body: Schedule, axis: str) -> Iterator[int]:
    """The blocks into which operations of a loop cut the dimension."""
    for step in body.steps:
        if isinstance(step, Run):
            yield from (cut.block for _, cut in step.cuts if axis in cut.axes)
        elif isinstance(step, Region | Repeat):
            yield from blocks(step.body, axis)
