"""`tp.search`: from a program to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from combinators.arguments import read_flag, read_integer
from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from tapestry_jax.machines.known import find
from tapestry_jax.machines.of_mesh import machine_of
from tapestry_jax.plan import Plan, plan_of
from tapestry_jax.planning.asked import read_asked
from tapestry_jax.planning.derivatives.positions import read_positions
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.searching.arguments import read_limit, read_memory, read_method
from tapestry_jax.searching.choices import space_of
from tapestry_jax.searching.evaluated import Evaluated, evaluate, held, weigh
from tapestry_jax.searching.method import Bound, Proposal, Stop
from tapestry_jax.searching.methods import METHODS
from tapestry_jax.searching.problem import Problem


def search(
    graph: Graph,
    mesh: Any,
    machine: Any = None,
    memory: int | str | None = None,
    method: str = "auto",
    seed: int = 0,
    *,
    grad: Any = False,
    entries: Mapping[str, Any] | None = None,
    ops: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
    accumulate: Any = None,
    platforms: Any = None,
    remat: Any = None,
    time_limit: float | None = None,
    progress: bool = False,
) -> Plan:
    """Find a plan: the cheapest by `plan.cost` among those that fit into memory.

    Args:
      graph: from `tp.trace`.
      mesh: as for `tp.plan`; it needs no devices.
      machine: as for `plan.cost`: a `tp.machines.Machine` or a name; by default the one that the mesh is.
      memory: bytes of one device, as a number or as text such as `"70GB"` or `"64GiB"`; by default the machine's.
      method: `auto`, or the name of a method.
      seed: of methods that draw.
      grad: as for `plan.cost`: whether time and memory are those of values and gradients.
      entries: what is fixed, as for `tp.plan`: the search adds to it, and changes nothing of it. None for a dimension
        keeps it whole.
      ops: exceptions that are fixed.
      inputs: layouts of inputs that are fixed.
      outputs: layouts of outputs that are fixed.
      accumulate: as for `tp.plan`.
      platforms: as for `tp.plan`.
      remat: as for `tp.plan`; by default the search chooses, with False nothing is computed again.
      time_limit: seconds after which the best plan so far is given.
      progress: whether to show how the search goes, on a terminal.

    Returns:
      A plan, proved. `plan.gap` says how far from the best it may be, where the method knows.

    Raises:
      PlanError: when no plan fits into memory, what is fixed contradicts itself, or an argument is none.
      MeshError: for an unknown machine, or a mesh that does not fill it.
    """
    shape = MeshShape.of(mesh)
    fixed = read_asked(shape, entries, ops, inputs, outputs, accumulate, platforms, remat)
    found = machine_of(mesh) if machine is None else find(machine)
    problem = Problem(
        graph, mesh, found, read_memory(memory, found), read_positions(grad, graph), fixed, remat=remat is None
    )
    name = read_method(method, METHODS)
    seed = read_integer(seed, "seed= of tp.search", PlanError)
    read_flag(progress, "progress= of tp.search", PlanError)
    chosen = METHODS["exhaustive" if name == "auto" else name]
    space = space_of(problem, exceptions=False)
    best, gap = best_of(problem, chosen(problem, space, seed, Stop(read_limit(time_limit))))
    plan = plan_of(graph, mesh, best.asked, best.schedule, gap)
    plan.verify()
    return plan


def best_of(problem: Problem, proposals: Iterable[Proposal]) -> tuple[Evaluated, float | None]:
    """The cheapest of what was proposed that fits, and its gap: priced and weighed exactly, as `Plan` does.

    Raises:
      PlanError: when nothing fits.
    """
    bound: float | None = None
    found: dict[int, Evaluated] = {}
    for proposal in proposals:
        if isinstance(proposal, Bound):
            bound = max(proposal.seconds, bound or 0.0)
        else:
            candidate = evaluate(problem, proposal)
            if isinstance(candidate, Evaluated):
                found[id(candidate)] = candidate
    for candidate in sorted(found.values(), key=lambda each: each.seconds):
        if _fits(problem, candidate):
            gap = None if bound is None else max(0.0, 1 - bound / candidate.seconds) if candidate.seconds else 0.0
            return candidate, gap
    raise PlanError(message("no plan was found that fits into memory", remedy="Give more memory, or more devices."))


def _fits(problem: Problem, candidate: Evaluated) -> bool:
    if problem.memory is None:
        return True
    return held(problem, candidate) <= problem.memory and weigh(problem, candidate).total <= problem.memory
