"""Repetitions whose turns the host takes, as passes over what is stored: one turn written out behind the other.

A `Repeat` in whose body stands a loop that the host turns cannot run on the devices. Its body is not planned again: the
steps are those of the schedule, with slots of their own for every turn, and turn after turn reads what the one before
has made. So a pass of a repetition is a pass as any other for all that comes behind. One that ends when a condition
holds has all turns that it may take, and between them is noted where it may end: whoever runs them leaves out the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.planning.geometry.time_axis import dim_of
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Schedule, Slot, Step


@dataclass(frozen=True)
class End:
    """Where a repetition ends whose condition holds: before each of its turns, and behind the last one anyway.

    Attributes:
      repeat: the repetition, in the slots around it.
      number: which one, of all that are written out: one inside of another is one in each turn of that.
      flag: the slot of the condition; None behind the last turn.
      carried: the slots of what it hands on here, which its results are if it ends.
    """

    repeat: Repeat
    number: int
    flag: int | None
    carried: tuple[int, ...]


@dataclass(frozen=True)
class Placed:
    """A step, or an end, and where it comes from.

    Attributes:
      step: in the slots of the schedule that is written out.
      graph: whose nodes it names.
      scope: the repetitions around it, each with the number of the turn; "" outside of all.
    """

    step: Step | End
    graph: Graph
    scope: str


def written_out(schedule: Schedule, dims: frozenset[str]) -> tuple[Schedule, tuple[Placed, ...]]:
    """The schedule without the repetitions around loops over some dimensions, and where its steps come from."""
    if not any(isinstance(step, Repeat) and is_turned(step, dims) for step in schedule.steps):
        return schedule, tuple(Placed(step, schedule.graph, "") for step in schedule.steps)
    writer = _Writer(schedule.slots, dims)
    moved: dict[int, int] = {}
    writer.write(schedule.steps, schedule.graph, moved, "")
    outputs = tuple(moved.get(slot, slot) for slot in schedule.outputs)
    steps = tuple(placed.step for placed in writer.steps if not isinstance(placed.step, End))
    return replace(schedule, slots=tuple(writer.slots), steps=steps, outputs=outputs, again=()), tuple(writer.steps)


def is_turned(step: Repeat, dims: frozenset[str]) -> bool:
    """Whether the host takes the turns of a repetition: it hands on what it carries, and nothing else."""
    is_plain = not (step.axes or step.stage) and len(step.results) == step.carries
    return is_plain and _has_loops(step.body, dims)


def _has_loops(body: Schedule, dims: frozenset[str]) -> bool:
    return any(
        (isinstance(step, Region) and dim_of(step.axis) in dims)
        or (isinstance(step, Repeat) and _has_loops(step.body, dims))
        for step in body.steps
    )


class _Writer:
    def __init__(self, slots: Sequence[Slot], dims: frozenset[str]) -> None:
        self.slots, self.steps, self._dims = list(slots), list[Placed](), dims
        self._ends = 0

    def write(self, steps: Sequence[Step], graph: Graph, moved: dict[int, int], scope: str) -> None:
        """Add steps whose slots are others here; those that `moved` does not name are the same."""
        for step in steps:
            if isinstance(step, Repeat) and is_turned(step, self._dims):
                self._write_turns(step, moved, scope)
            else:
                self.steps.append(Placed(moved_step(step, moved), graph, scope))

    def _write_turns(self, step: Repeat, moved: dict[int, int], scope: str) -> None:
        body = step.body
        given = [moved.get(slot, slot) for slot in step.operands]
        always = dict(zip(body.inputs[step.carries :], given[step.carries :], strict=True))
        for change in step.prologue:
            always[change.result] = self._add(body.slots[change.result])
            self.steps.append(Placed(moved_step(change, always), body.graph, f"{scope}{step.path}/"))
        carried = given[: step.carries]
        results = [moved.get(slot, slot) for slot in step.results]
        ends = replace(step, operands=tuple(given), results=tuple(results)) if step.until and step.length else None
        number = self._ends = self._ends + (ends is not None)

        def may_end(flag: int | None) -> None:
            if ends is not None:
                self.steps.append(Placed(End(ends, number, flag, tuple(carried)), body.graph, scope))

        for turn in range(step.length):
            may_end(carried[0])
            inside = always | dict(zip(body.inputs, carried, strict=False))
            inside |= {slot: self._add(kind) for slot, kind in enumerate(body.slots) if slot not in inside}
            self.write(body.steps, body.graph, inside, f"{scope}{step.path}.{turn}/")
            carried = [inside[slot] for slot in body.outputs]
        may_end(None)
        moved.update(zip(step.results, carried if ends is None else results, strict=True))

    def _add(self, slot: Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1


def moved_step(step: Step, moved: dict[int, int]) -> Step:
    """A step with other slots around it; those that `moved` does not name are the same."""
    if isinstance(step, Convert):
        return replace(step, source=moved.get(step.source, step.source), result=moved.get(step.result, step.result))
    operands, results = (tuple(moved.get(slot, slot) for slot in kind) for kind in (step.operands, step.results))
    return replace(step, operands=operands, results=results)
