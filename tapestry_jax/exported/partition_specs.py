"""From a schedule to shardings and axis rules."""

from __future__ import annotations

import jax
from jax.sharding import PartitionSpec

from tapestry_jax.exported.rules import Placed, logical
from tapestry_jax.exported.specs import PartitionSpecs
from tapestry_jax.exported.unsaid import unsaid
from tapestry_jax.planning.geometry.layout import Layout, true_layout
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.rewrites.carriers import Accumulate
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule, Slot


def partition_specs(schedule: Schedule, accumulate: Accumulate = ()) -> PartitionSpecs:
    """Say a plan in the words of plain JAX.

    Args:
      schedule: of a plan.
      accumulate: dtypes in which its folds are carried, by scope.
    """
    graph = schedule.graph
    given, made = ([schedule.slots[i] for i in slots] for slots in (schedule.inputs, schedule.outputs))
    labels = [*(node.name for node in graph.inputs), *(name for name, _ in graph.outputs)]
    names, rules = logical([_placed(slot, schedule) for slot in (*given, *made)])
    return PartitionSpecs(
        inputs=jax.tree.unflatten(graph.in_tree, [_spec(slot, schedule) for slot in given]),
        outputs=jax.tree.unflatten(graph.out_tree, [_spec(slot, schedule) for slot in made]),
        values=_values(schedule),
        names=dict(zip(labels, names, strict=True)),
        rules=rules,
        unsaid=unsaid(schedule, accumulate),
    )


def _layout(slot: Slot, schedule: Schedule) -> Layout:
    """As JAX can store it: in blocks that divide, and in their own order."""
    return true_layout(slot.layout, slot.type.shape, schedule.mesh)


def _spec(slot: Slot, schedule: Schedule) -> PartitionSpec:
    cuts = _layout(slot, schedule).cuts
    found = [None if cut is None else cut.axes[0] if len(cut.axes) == 1 else cut.axes for cut in cuts]
    # A whole array may be random keys, which have an axis less than their words.
    return PartitionSpec(*found) if any(found) else PartitionSpec()


def _placed(slot: Slot, schedule: Schedule) -> Placed:
    cuts = _layout(slot, schedule).cuts
    axes = [() if cut is None else in_space(cut.axes) for cut in cuts]
    return tuple((name or "_", over) for name, over in zip(slot.type.names, axes, strict=True))


def _values(schedule: Schedule) -> dict[str, PartitionSpec]:
    """How results of operations lie, in loops those of one turn."""
    found: dict[str, PartitionSpec] = {}
    for step in schedule.steps:
        match step:
            case Run() if not step.carried and not is_barrier(schedule.graph.nodes[step.node]):
                several = len(step.results) > 1
                for number, slot in enumerate(step.results):
                    path = f"{step.path}/{number}" if several else step.path
                    found.setdefault(path, _spec(schedule.slots[slot], schedule))
            case Repeat() | Region():
                found |= {path: spec for path, spec in _values(step.body).items() if path not in found}
            case _:
                pass
    return found
