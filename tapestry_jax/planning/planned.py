"""Planning, read aloud: from a graph and what was asked of it to the steps of one device."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Loop
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.entries.remat import Remat, check_remat
from tapestry_jax.planning.entries.unused import check_all_used
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.proof.site import refuse
from tapestry_jax.planning.refining.regather import regathered
from tapestry_jax.planning.refining.remat import rematerialised
from tapestry_jax.planning.rewrites.carriers import carried
from tapestry_jax.planning.rewrites.deepen import deepened
from tapestry_jax.planning.rewrites.platforms import chosen, platforms_of
from tapestry_jax.planning.scheduling.graph import demanded, scheduled
from tapestry_jax.planning.scheduling.schedule import Schedule


def planned(graph: Graph, mesh: Any, asked: Asked, known: dict[Hashable, Schedule] | None = None) -> Schedule:
    """From what was asked to a schedule, every step a function from data to data.

    The schedule is all that follows it reads: what is predicted (`Plan.collectives`, `Plan.explain`), what is proved
    (`Plan.verify`), and what is lowered (`Plan.compile`).

    Args:
      graph: the program.
      mesh: a mesh, abstract or not; its shape is read, and its platform where none was asked for.
      asked: where its dimensions go, and how.
      known: schedules of this graph on this mesh so far, by how operations are cut. Entries that cut all of them alike
        are one schedule, which is found once, whatever they say.

    Raises:
      PlanError: for entries that no operation has a use for, and whatever cannot be placed, widened or repeated so.
    """
    shape = MeshShape.of(mesh)
    # What the user wrote, as one answer to where a dimension of an operation goes.
    placer = asked.placer(shape)
    platforms = asked.platforms or platforms_of(mesh)
    ready = rewritten(graph, placer, asked, platforms)
    # It is written out as the steps of one device, and these are rewritten.
    inputs, outputs = asked.input_layouts(graph, shape), asked.output_layouts(graph, shape)
    demands = demanded(ready, shape, placer, inputs, outputs)

    def written() -> Schedule:
        return replace(_refined(scheduled(demands, inputs, outputs), asked.remat), platforms=platforms)

    if known is None or not placer.is_in_space:
        # Loops in time are ordered by the entries, and halos read from them: those say more than how they cut.
        schedule = written()
    else:
        rest = replace(asked, entries=(), ops=(), inputs=(), outputs=())
        key = demands.placed(), tuple(sorted(inputs.items())), tuple(sorted(outputs.items())), rest
        schedule = known[key] if key in known else known.setdefault(key, written())
    check_all_used(placer, graph)
    check_remat(graph, asked.remat)
    return schedule


def rewritten(graph: Graph, placer: Placer, asked: Asked, platforms: tuple[str, ...]) -> Graph:
    """The graph that is scheduled: in the dtypes of its folds, several turns to a halo, with the kernels of platforms.

    What keeps turns apart is one of these kernels.
    """
    return chosen(deepened(carried(graph, asked.accumulate), placer), platforms)


def check_program(schedule: Schedule, graph: Graph, mesh: Any, asked: Asked) -> None:
    """Refuse a schedule that is one of another program, or for another mesh.

    Raises:
      PlanError: where it is.
    """
    shape = MeshShape.of(mesh)
    if schedule.mesh != shape:
        refuse("program", "is scheduled for another mesh", f"expected {shape}, got {schedule.mesh}")
    wanted = rewritten(graph, asked.placer(shape), asked, asked.platforms or platforms_of(mesh))
    if schedule.graph is not wanted and schedule.graph != wanted:
        refuse("program", "is not what the schedule computes, which is one of another program")


def check_gradients(schedule: Schedule) -> None:
    """Refuse a schedule that was proved, if it says of a loop that gradients end there, where they pass, or not.

    Raises:
      PlanError: naming the loop.
    """
    if any(isinstance(node, Loop) for node in schedule.graph.nodes):
        # Few programs have loops.
        from tapestry_jax.planning.refining.stopped import check_stopped

        check_stopped(schedule)


def _refined(schedule: Schedule, remat: Remat) -> Schedule:
    """What the backward pass computes again, what is gathered where it is used, and where gradients end."""
    refined = regathered(rematerialised(schedule, remat))
    if not any(node.until for _, node in walk.loops(schedule.graph)):
        return refined
    # Few programs have loops that end by a condition.
    from tapestry_jax.planning.prediction.turns_apart import refuse_turns_apart
    from tapestry_jax.planning.refining.stopped import stopped

    refuse_turns_apart(refined)
    return stopped(refined)
