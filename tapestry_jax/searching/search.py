"""`tp.search`: from a program to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from combinators.errors import PlanError
from combinators.graphs.graph import Graph
from tapestry_jax.plan import Plan, plan_of
from tapestry_jax.searching.best import Best, best_of
from tapestry_jax.searching.choices import space_of
from tapestry_jax.searching.evaluated import weigh
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.methods import METHODS
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.progress import progress_of
from tapestry_jax.searching.question.kept import keep, kept, key_of
from tapestry_jax.searching.question.read import Question, read_question


def search(
    graph: Graph,
    mesh: Any,
    machine: Any = None,
    memory: int | str | None = None,
    method: str = "auto",
    seed: int = 0,
    *,
    grad: bool | int | Sequence[int] = False,
    entries: Mapping[str, Any] | None = None,
    ops: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
    accumulate: Any = None,
    platforms: Any = None,
    remat: Any = None,
    start: Plan | None = None,
    cache: str | PathLike[str] | None = None,
    time_limit: float | None = None,
    progress: bool = False,
) -> Plan:
    """Find a plan: the cheapest by `plan.cost` that fits into memory by `plan.memory`.

    Args:
      graph: from `tp.trace`.
      mesh: as for `tp.plan`; it needs no devices. A list of meshes, or a number of devices, for the best plan on any of
        them: a number is laid out along one axis, `data`, or along two, `data` and `model`, in every way.
      machine: as for `plan.cost`: a `tp.machines.Machine` or a name; by default the one that the mesh is.
      memory: bytes of one device, as a number or as text such as `"70GB"` or `"64GiB"`; by default the machine's.
      method: `"exhaustive"` tries all candidates and is for small programs; `"anneal"` walks; `"auto"` chooses.
      seed: of methods that draw. Without a time limit the same seed gives the same plan.
      grad: as for `plan.cost`: whether time and memory are those of values and gradients.
      entries: what is fixed, as for `tp.plan`: the search adds to it, and changes nothing of it. None for a dimension
        keeps it whole.
      ops: exceptions that are fixed.
      inputs: layouts of inputs that are fixed.
      outputs: layouts of outputs that are fixed; the search chooses none.
      accumulate: as for `tp.plan`.
      platforms: as for `tp.plan`.
      remat: as for `tp.plan`; by default the search chooses, with False nothing is computed again.
      start: a plan to begin from; what is found is not dearer, if it fits.
      cache: a directory of plans found before. A plan is found there by graph, mesh, machine, memory, gradients, what
        is fixed, method and seed, and proved before it is used; its `gap` is not kept.
      time_limit: seconds, for each mesh, after which the best plan so far is given.
      progress: whether to show on a terminal how the search goes.

    Returns:
      A plan, proved. `plan.gap` says how far from the best it may be, where the method knows. An interrupt
      (`KeyboardInterrupt`) gives the best plan so far.

    Raises:
      PlanError: when no plan fits into memory (with what is alive at the peak, and the least memory that was found),
        what is fixed contradicts itself, a price is no number, or an argument is none.
      MeshError: for an unknown machine, or a mesh that does not fill it.

    Example:
      >>> import tapestry_jax as tp
      >>> from jax.sharding import AbstractMesh
      >>> types = tp.TensorType({"i": 65536, "k": 1024}), tp.TensorType({"k": 1024, "n": 1024})
      >>> product = tp.trace(tp.einsum("i k, k n -> i n"), *types)
      >>> tp.search(product, AbstractMesh((4,), ("data",)), "H100").entries
      (('i', ('data',)),)
    """
    given = {name: value for name, value in locals().items() if name not in ("graph", "mesh", "machine", "memory")}
    question = read_question(graph, mesh, machine, memory, given)
    return _cheapest(question)


def pareto(graph: Graph, mesh: Any, machine: Any = None, *, points: int = 6, **options: Any) -> tuple[Plan, ...]:
    """Plans from the fastest to the smallest: each takes longer than the one before it, and less memory.

    The fastest is searched for first; then the fastest that needs three quarters of its memory at most, and so on.

    Args:
      graph: as for `search`.
      mesh: one mesh.
      machine: as for `search`.
      points: so many plans at most.
      options: as for `search`; `memory` is that of the first.

    Returns:
      Plans, none of which is better than another in both.

    Raises:
      PlanError: as `search` does, when not even one fits.
    """
    memory = options.pop("memory", None)
    question = read_question(graph, mesh, machine, memory, options)
    (problem,) = question.problems
    found: list[Plan] = []
    while len(found) < points:
        try:
            best = _best(question, problem)
        except PlanError:
            if not found:
                raise
            break
        found.append(_plan(problem, best))
        problem = replace(problem, memory=weigh(problem, best.found).total * 3 // 4)
    return tuple(found)


def _cheapest(question: Question) -> Plan:
    """The best plan over all meshes; refusals are raised where no mesh has a plan."""
    found: list[tuple[float, int, Plan]] = []
    refused: list[PlanError] = []
    for number, problem in enumerate(question.problems):
        try:
            plan = _searched(question, problem)
        except PlanError as error:
            refused.append(error)
            continue
        found.append((plan.cost(problem.machine, problem.grad).seconds, number, plan))
    if not found:
        raise refused[-1]
    return min(found, key=lambda each: each[:2])[2]


def _searched(question: Question, problem: Problem) -> Plan:
    if question.directory is None:
        return _plan(problem, _best(question, problem))
    key = key_of(problem, question.method, question.seed)
    known = kept(question.directory, key, problem)
    if known is not None:
        return known
    plan = _plan(problem, _best(question, problem))
    keep(question.directory, key, plan)
    return plan


def _best(question: Question, problem: Problem) -> Best:
    progress = progress_of(problem, wanted=question.progress)
    stop = Stop(question.limit, tell=progress)
    try:
        return best_of(problem, METHODS[question.method](problem, space_of(problem), question.seed, stop))
    finally:
        if progress is not None:
            progress.close()


def _plan(problem: Problem, best: Best) -> Plan:
    return plan_of(problem.graph, problem.mesh, best.found.asked, best.found.schedule, best.gap)
