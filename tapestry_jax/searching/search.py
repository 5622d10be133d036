"""`tp.search`: from a program to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from combinators.errors import PlanError
from combinators.graphs.graph import Graph
from tapestry_jax.plan import Plan
from tapestry_jax.searching.answered import answer, plan_for
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
      machine: as for `plan.cost`: a `tp.machines.Machine` or a name; by default the one that the mesh is, for CPUs that
        are here `tp.machines.CPU` with their memory. The plan found keeps it, for `plan.cost()` and the like.
      memory: bytes of one device, as a number or as text such as `"70GB"` or `"64GiB"`; by default the machine's.
      method: `"exhaustive"` tries all candidates and is for small programs; `"anneal"` walks; `"milp"` solves an
        integer program (`pip install 'tapestry-jax[search]'`); `"auto"` takes the first for few candidates, the last
        for many operations where the solver is installed, and else walks.
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
        is fixed, method, seed, time limit and `start`, and proved before it is used; its `gap` is not kept.
      time_limit: seconds, for each mesh, after which the best plan so far is given, by the solver too.
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
    return _cheapest(read_question(graph, mesh, machine, memory, given))


def _cheapest(question: Question) -> Plan:
    """The best plan over all meshes; refusals are raised where no mesh has a plan."""
    found: list[tuple[float, int, Plan]] = []
    refused: list[PlanError] = []
    for number, problem in enumerate(question.problems):
        try:
            best = answer(question, problem)
        except PlanError as error:
            refused.append(error)
            continue
        except KeyboardInterrupt:
            if not found:
                raise
            break
        found.append((best.found.seconds, number, plan_for(problem, best)))
        if best.interrupted:
            break
    if not found:
        raise refused[-1]
    return min(found, key=lambda each: each[:2])[2]
