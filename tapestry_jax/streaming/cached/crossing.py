"""What a job makes that other jobs may want: results of passes, what stands between them, and its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Ref
from tapestry_jax.planning.rewrites.deepen import stands_for
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Repeat, Run, Schedule, Step
from tapestry_jax.streaming.parts import Between, Ending, Pass, Split


def crossing(split: Split, program: Graph) -> dict[Ref, int]:
    """Values of the program that one part of a stream leaves to another or to the caller, with their slots.

    Args:
      split: of a plan.
      program: its graph, as it was before loops were divided: that is what values are known by.
    """
    schedule, graph = split.schedule, split.schedule.graph
    found = dict[Ref, int]()
    for part in _behind_a_pass(split):
        found.update(_left(part, schedule))
    outputs = {ref: slot for (_, ref), slot in zip(graph.outputs, split.outputs, strict=True)}
    found |= outputs
    slots, known = schedule.slots, stands_for(program, graph)
    return {
        Ref(known[ref.node], ref.output): slot
        for ref, slot in found.items()
        if ref.node in known
        and not isinstance(graph.nodes[ref.node], Input)
        and slots[slot].type.struct == graph.type_of(ref).struct
    }


def _behind_a_pass(split: Split) -> Iterator[Pass | Between]:
    """What stands before the first pass is small, and computed of what is small."""
    has_turned = False
    for part in split.parts:
        has_turned = has_turned or isinstance(part, Pass)
        if has_turned and not isinstance(part, Ending):
            yield part


def _left(part: Pass | Between, schedule: Schedule) -> Iterator[tuple[Ref, int]]:
    inside = part.part if isinstance(part, Between) else part.region.body
    if inside.graph is not schedule.graph:
        # A turn of a repetition: values of the graph are those behind all turns.
        return
    if isinstance(part, Between):
        made = _made(part.part.steps, schedule)
        yield from ((made[slot], slot) for slot in part.part.outputs if slot in made)
        return
    made = _made(part.region.body.steps, schedule)
    for each in (*part.made, *part.still):
        if each.slot in made:
            yield made[each.slot], each.value


def _made(steps: tuple[Step, ...], schedule: Schedule) -> Mapping[int, Ref]:
    """The values of the graph that steps make, by slot; states of folds and totals of scans are none."""
    found = dict[int, Ref]()
    for step in steps:
        if isinstance(step, Convert):
            if step.source in found:
                found[step.result] = found[step.source]
        elif isinstance(step, Run | Finish | Repeat) and _is_result(step, schedule):
            count = len(schedule.graph.nodes[step.node].results)
            found.update({slot: Ref(step.node, number) for number, slot in enumerate(step.results[:count])})
    return found


def _is_result(step: Run | Finish | Repeat, schedule: Schedule) -> bool:
    node = schedule.graph.nodes[step.node]
    if isinstance(step, Repeat) or not isinstance(node, Apply):
        return True
    kind = node.operation.kind
    return kind == "scan" if isinstance(step, Run) and step.carried else (kind, type(step)) != ("scan", Finish)
