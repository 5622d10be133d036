"""`tp.pareto`: from a program to several plans, the fastest to the smallest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from combinators.errors import MeshError, PlanError, message, spelt
from combinators.graphs.graph import Graph
from tapestry_jax.plan import Plan
from tapestry_jax.searching.answered import answer, plan_for
from tapestry_jax.searching.evaluated import weigh
from tapestry_jax.searching.question.arguments import read_points
from tapestry_jax.searching.question.read import read_options, read_question


def pareto(graph: Graph, mesh: Any, machine: Any = None, *, points: int = 6, **options: Any) -> tuple[Plan, ...]:
    """Plans from the fastest to the smallest: each takes longer than the one before it, and less memory.

    The fastest is searched for first; then the fastest that needs three quarters of its memory at most, and so on.

    Args:
      graph: as for `search`.
      mesh: one mesh.
      machine: as for `search`.
      points: so many plans at most.
      options: as for `search`; `memory` is that of the first, `time_limit` of each.

    Returns:
      Plans, none of which is better than another in both. An interrupt gives those found so far.

    Raises:
      PlanError: as `search` does, when not even one fits; for what `search` does not take.
      MeshError: as `search` does, and for several meshes.
    """
    read_options(options)
    most = read_points(points)
    if isinstance(mesh, list | tuple | int):
        raise _several(mesh)
    memory = options.pop("memory", None)
    question = read_question(graph, [mesh], machine, memory, options)
    (problem,) = question.problems
    found: list[tuple[float, Plan]] = []
    while len(found) < most and problem.memory:
        try:
            best = answer(question, problem)
        except (PlanError, KeyboardInterrupt):
            if not found:
                raise
            break
        # What needs less memory and takes no longer takes the place of those before it.
        found = [each for each in found if each[0] < best.found.seconds]
        found.append((best.found.seconds, plan_for(problem, best)))
        problem = replace(problem, memory=weigh(problem, best.found).total * 3 // 4)
        if best.interrupted:
            break
    return tuple(plan for _, plan in found)


def _several(mesh: Any) -> MeshError:
    return MeshError(
        message(
            "tp.pareto takes one mesh",
            f"got {type(mesh).__name__}: {spelt(mesh)}",
            remedy="Give one of them; tp.search chooses among several, and what it finds has a mesh.",
        )
    )
