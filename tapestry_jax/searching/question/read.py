"""A user's question, read: one problem for every mesh, and how it is searched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from combinators.arguments import read_flag, read_integer
from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.difference import first_difference
from combinators.graphs.graph import Graph
from tapestry_jax.machines.cpu import cpu_of
from tapestry_jax.machines.known import find
from tapestry_jax.machines.of_mesh import machine_of
from tapestry_jax.plan import Plan, asked_of
from tapestry_jax.planning.asked import Asked, read_asked
from tapestry_jax.planning.derivatives.positions import read_positions
from tapestry_jax.planning.entries.remat import check_remat
from tapestry_jax.planning.entries.unused import check_names
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.searching.answering.lacking import shown
from tapestry_jax.searching.methods import METHODS
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.question.arguments import read_limit, read_memory, read_method
from tapestry_jax.searching.question.kept import keeps, read_directory
from tapestry_jax.searching.question.meshes import read_meshes

HOW = ("memory", "method", "seed", "grad", "start", "cache", "time_limit", "progress")
FIXED = ("entries", "ops", "inputs", "outputs", "accumulate", "platforms", "remat")


@dataclass(frozen=True, eq=False)
class Question:
    """What to search and how.

    Attributes:
      problems: one for each mesh.
      method: its name.
      seed: of methods that draw.
      limit: seconds for each mesh, or None.
      progress: whether to show how it goes.
      directory: of plans found before, or None.
    """

    problems: tuple[Problem, ...]
    method: str
    seed: int
    limit: float | None
    progress: bool
    directory: Path | None


def read_question(graph: Any, mesh: Any, machine: Any, memory: Any, options: Mapping[str, Any]) -> Question:
    """Read the arguments of `tp.search`.

    Raises:
      PlanError: for an argument that is none.
      MeshError: for an unknown machine, or no mesh.
    """
    if not isinstance(graph, Graph):
        raise PlanError(
            message(
                "only graphs can be searched for plans",
                f"got {type(graph).__name__}: {spelt(graph)}",
                remedy="Trace the program first: tp.search(tp.trace(f, *specs), mesh, 'H100').",
            )
        )
    method = read_method(options.get("method", "auto"), METHODS)
    seed = read_integer(options.get("seed", 0), "seed= of tp.search", PlanError)
    grad = read_positions(options.get("grad", False), graph)
    problems: list[Problem] = []
    for each in read_meshes(mesh):
        found = (cpu_of(each) or machine_of(each)) if machine is None else find(machine)
        fixed = _read_fixed(graph, MeshShape.of(each), options)
        amount, free = read_memory(memory, found), options.get("remat") is None
        start = _read_start(options.get("start"), graph, each, fixed)
        problems.append(Problem(graph, each, found, amount, grad, fixed, free, start))
    limit = read_limit(options.get("time_limit"))
    progress = read_flag(options.get("progress", False), "progress= of tp.search", PlanError)
    return Question(tuple(problems), method, seed, limit, progress, read_directory(options.get("cache")))


def read_options(options: Mapping[str, Any]) -> None:
    """Look at the names of options that come in a mapping.

    Raises:
      PlanError: for one that `tp.search` does not take.
    """
    unknown = [name for name in options if name not in (*HOW, *FIXED)]
    if unknown:
        raise PlanError(
            message(
                "tp.pareto was given what tp.search does not take",
                f"got {', '.join(f'{name}=' for name in unknown)}",
                f"known are {', '.join((*HOW, *FIXED))}",
                remedy="Leave it out, or spell it as it is known.",
            )
        )


def _read_fixed(graph: Graph, mesh: MeshShape, options: Mapping[str, Any]) -> Asked:
    """What is fixed; a name that is not there is told before anything is tried, as `tp.plan` tells it."""
    fixed = read_asked(mesh, *(options.get(name) for name in FIXED))
    check_names(graph, fixed.entries, fixed.ops)
    fixed.input_layouts(graph, mesh)
    fixed.output_layouts(graph, mesh)
    check_remat(graph, fixed.remat)
    return fixed


def _read_start(start: Any, graph: Graph, mesh: Any, fixed: Asked) -> Asked | None:
    if start is None:
        return None
    if not isinstance(start, Plan):
        what = message(
            "start= of tp.search is no plan",
            f"got {type(start).__name__}: {spelt(start)}",
            remedy="Give a plan of this graph on this mesh, such as tp.plan(graph, mesh, {...}).",
        )
        raise PlanError(what)
    if start.graph.key != graph.key:
        what, *lines = first_difference(start.graph, graph, ("the plan", "what is searched"))
        raise PlanError(
            message(f"start= of tp.search is a plan of another graph: {what}", *lines, remedy="Plan this graph.")
        )
    if MeshShape.of(start.mesh) != MeshShape.of(mesh):
        raise PlanError(
            message(
                "start= of tp.search is a plan for another mesh",
                f"it is for {MeshShape.of(start.mesh)}",
                f"searched is for {MeshShape.of(mesh)}",
                remedy="Plan the graph on this mesh.",
            )
        )
    if not keeps(asked_of(start), fixed):
        raise PlanError(
            message(
                "start= of tp.search contradicts what is fixed",
                f"it asks for {shown(asked_of(start))}",
                f"fixed is {shown(fixed)}",
                remedy="Fix less, or begin from a plan that asks for it too.",
            )
        )
    return asked_of(start)
