"""The schedule: a program written out as the steps that every device runs, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from combinators.graph import Graph
from combinators.tensor_type import TensorType
from tapestry_jax.planning.changes import Change
from tapestry_jax.planning.layout import Cut, Layout
from tapestry_jax.planning.mesh_shape import MeshShape


@dataclass(frozen=True)
class Slot:
    """A value on the devices: its global type, its layout, and the mesh axes over which it varies."""

    type: TensorType
    layout: Layout
    varying: frozenset[str]

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of one device's piece."""
        return self.layout.local_shape(self.type.shape)


@dataclass(frozen=True)
class Convert:
    """A change of layout, made for the operation `path` and shared by all that want the same."""

    source: int
    result: int
    changes: tuple[Change, ...]
    path: str


@dataclass(frozen=True)
class Scatter:
    """A fold whose result is wanted cut: the axis of the result that takes the mesh axes of the fold."""

    axis: int
    cut: Cut


@dataclass(frozen=True)
class Run:
    """One operation on blocks.

    Attributes:
      node: its index in the graph.
      operands: slots.
      results: slots.
      cuts: dimension to cut, for the dimensions that are cut.
      axes: all mesh axes of the cuts.
      scatter: where a fold's result is scattered instead of shared.
      path: of the operation.
      gathers: operands, by place, that arrive as they are stored, and the changes that bring them together; the
        backward pass makes these again.
    """

    node: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    cuts: tuple[tuple[str, Cut], ...]
    axes: frozenset[str]
    scatter: Scatter | None
    path: str
    gathers: tuple[tuple[int, tuple[Change, ...]], ...] = ()


@dataclass(frozen=True)
class Repeat:
    """A loop: the body's schedule, run `length` times.

    Attributes:
      node: its index in the graph.
      operands: slots, converted as the body wants them.
      results: slots.
      body: the schedule of one turn; its inputs are carries, slices, constants.
      prologue: steps of the body that depend on constants alone, or only cast a stacked operand; run once before.
      path: of the loop.
    """

    node: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    body: Schedule
    prologue: tuple[Convert, ...]
    length: int
    carries: int
    axes: tuple[int, ...]
    path: str


Step = Convert | Run | Repeat


@dataclass(frozen=True)
class Schedule:
    """What one device does.

    Attributes:
      graph: the program; steps name its nodes.
      mesh: the shape of the mesh.
      slots: every value that exists.
      inputs: slots of the graph's inputs.
      steps: in order.
      outputs: slots of the graph's outputs.
    """

    graph: Graph = field(repr=False)
    mesh: MeshShape
    slots: tuple[Slot, ...]
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
