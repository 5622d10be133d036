"""What a search is asked: a program, where it runs, what it may take, and what stays as the user fixed it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.machines.machine import Machine
from tapestry_jax.memory.predicted import MemoryNeeded
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.derivatives.positions import Positions
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.scheduling.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Problem:
    """A question to a search; data, and what was found out about its plans so far.

    Attributes:
      graph: the program.
      mesh: with devices or abstract.
      machine: whose prices count.
      memory: bytes that a device has; None for no bound.
      grad: what gradients are taken by, as in `plan.cost`.
      fixed: what the user asked for; every plan found asks for it too.
      remat: whether the search may choose what the backward pass computes again; not where the user said it.
      start: what to begin from, if anything.
      evaluated: what was evaluated so far, by what was asked.
      weighed: the memory of those that were weighed.
      weighed_at: by their price the schedules of these.
      schedules: those that were planned so far, by how operations are cut.
      priced: schedules and their seconds, by identity.
      unproved: what the proof refused.
    """

    graph: Graph = field(repr=False)
    mesh: Any
    machine: Machine = field(repr=False)
    memory: int | None
    grad: Positions
    fixed: Asked
    remat: bool = True
    start: Asked | None = None
    evaluated: dict[Asked, Any] = field(default_factory=dict[Asked, Any], repr=False)
    weighed: dict[Asked, MemoryNeeded] = field(default_factory=dict[Asked, MemoryNeeded], repr=False)
    weighed_at: dict[float, list[tuple[Schedule, MemoryNeeded]]] = field(
        default_factory=dict[float, list[tuple[Schedule, MemoryNeeded]]], repr=False
    )
    schedules: dict[Hashable, Schedule] = field(default_factory=dict[Hashable, Schedule], repr=False)
    priced: dict[int, tuple[Schedule, float]] = field(default_factory=dict[int, tuple[Schedule, float]], repr=False)
    unproved: set[Asked] = field(default_factory=set[Asked], repr=False)

    @property
    def shape(self) -> MeshShape:
        """The axes of the mesh."""
        return MeshShape.of(self.mesh)
