"""A plan, shown: what `Plan.show` does."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from combinators.errors import MeshError
from combinators.graphs.graph import Graph
from tapestry_jax.machines.known import find
from tapestry_jax.machines.machine import Machine
from tapestry_jax.machines.of_mesh import machine_of
from tapestry_jax.memory.predicted import memory_needed
from tapestry_jax.planning.pricing.priced import price
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.planning.timeline.simulate import simulate
from tapestry_jax.report.diff import Side
from tapestry_jax.report.page.alternatives import alternatives
from tapestry_jax.report.page.document import Told, document
from tapestry_jax.report.page.html import html_page
from tapestry_jax.report.page.write import write_page
from tapestry_jax.report.weighed import Weighed

Positions = bool | int | Sequence[int]


def show_plan(graph: Graph, schedule: Schedule, path: str | os.PathLike[str] | None, told: Told, open: bool) -> Path:
    """Write the page of a plan.

    Args:
      graph: the program.
      schedule: of a plan for it.
      path: of the file; None for a new temporary one.
      told: what it shows besides, such as `told_of` finds.
      open: whether a browser is asked to show it.

    Returns:
      The file.

    Raises:
      PlanError: where it cannot be written.
    """
    written = write_page(path, html_page(document(graph, schedule, told)))
    if open:
        webbrowser.open(written.as_uri())
    return written


def told_of(
    own: Side,
    mesh: Any,
    machine: Any,
    grad: Positions,
    memory: bool,
    others: Sequence[Side],
    gap: float | None,
    weighed: Weighed | None = None,
) -> Told:
    """What a page says beside the plan: its cost and a run where the machine is known, and what is asked for.

    Args:
      own: the plan.
      mesh: of the plan.
      machine: as in `Plan.cost`; None is the one that the mesh's devices are, or none where they do not say it.
      grad: as in `Plan.collectives`.
      memory: whether the program is traced to count its buffers.
      others: plans of the same program that are listed beside it.
      gap: of a plan that was searched for.
      weighed: beside it, by that search.

    Raises:
      MeshError: for an unknown machine, or a mesh that does not fill it.
      PlanError: where one of the others is of another program.
    """
    found, schedule = _machine(mesh, machine), own.schedule
    return Told(
        cost=None if found is None else price(schedule, found, grad),
        timeline=None if found is None else simulate(schedule, found, grad),
        memory=memory_needed(schedule, mesh, grad) if memory else None,
        alternatives=alternatives(own, others, found, grad, weighed) if others or weighed else (),
        gap=gap,
        grad=grad,
    )


def _machine(mesh: Any, machine: Any) -> Machine | None:
    if machine is not None:
        return find(machine)
    try:
        return machine_of(mesh)
    except MeshError:
        # Nobody asked for prices, so that a mesh which does not say its machine is no mistake: the page says how to.
        return None
