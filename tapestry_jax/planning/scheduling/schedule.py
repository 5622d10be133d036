"""The schedule: a program written out as the steps that every device runs, in order."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import field
from functools import cached_property
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.planning.geometry.changes import Change
from tapestry_jax.planning.geometry.layout import Cut, Layout, dense_bytes
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import turns_of


@dataclass(frozen=True)
class Slot:
    """A value on the devices: its global type, its layout, and the mesh axes over which it varies."""

    type: TensorType
    layout: Layout
    varying: frozenset[str]

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of one device's piece."""
        return self.layout.local_shape(self.type.shape)

    @cached_property
    def local_bytes(self) -> int:
        """Bytes of one device's piece."""
        return dense_bytes(math.prod(self.local_shape), self.type.dtype)

    def bytes_in(self, layout: Layout) -> int:
        """Bytes of one device's piece, if it lay in another layout."""
        return dense_bytes(math.prod(layout.local_shape(self.type.shape)), self.type.dtype)

    @cached_property
    def has_cells(self) -> bool:
        """Whether there is anything to compute, to send, or to depend on."""
        return 0 not in self.type.shape


@dataclass(frozen=True)
class Convert:
    """A change of layout, made for the operation `path` and shared by all that want the same.

    An argument that `enters` the program otherwise than its first user reads it is brought there first. In a turn that
    the backward pass computes `again`, what is so marked is not kept from the first time, but brought again too.
    """

    source: int
    result: int
    changes: tuple[Change, ...]
    path: str
    enters: bool = False
    again: bool = False

    @property
    def operands(self) -> tuple[int, ...]:
        """The one operand, as other steps list theirs."""
        return (self.source,)

    @property
    def results(self) -> tuple[int, ...]:
        """The one result, as other steps list theirs."""
        return (self.result,)


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
      carried: of a fold: its results are the leaves of a state, which the loops around it add up, for a `Finish`. Of a
        scan: the leaves of the total before this turn are further operands, those of the next further results.
      kept: whether a turn around it that is computed again keeps the results.
    """

    node: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    cuts: tuple[tuple[str, Cut], ...]
    axes: frozenset[str]
    scatter: Scatter | None
    path: str
    gathers: tuple[tuple[int, tuple[Change, ...]], ...] = ()
    carried: bool = False
    kept: bool = False


@dataclass(frozen=True)
class Finish:
    """The end of a fold whose states loops have added up: merged over the mesh, once, and presented.

    Of a scan whose totals a loop has found: what the devices before come to, a total as well.

    Attributes:
      node: its index in the graph.
      operands: slots of the state's leaves.
      results: slots.
      cuts: as in `Run`, those in time too.
      axes: as in `Run`.
      scatter: as in `Run`.
      path: of the operation.
    """

    node: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    cuts: tuple[tuple[str, Cut], ...]
    axes: frozenset[str]
    scatter: Scatter | None
    path: str


@dataclass(frozen=True)
class Region:
    """A loop in time: operations that share a dimension run on one chunk of it after the other.

    Attributes:
      axis: the loop, as layouts inside it name it.
      operands: slots; the body slices what it reads in chunks.
      results: slots: the states' leaves of `folds`, then values whose chunks are put together again.
      body: the schedule of one turn. Its inputs are the operands and the totals of `scans` so far; its outputs the
        states of `folds`, the new totals, and values of one chunk.
      rotating: positions of operands that go round the mesh axis of a ring, each turn one device on.
      folds: node and number of leaves of every state that is added up.
      scans: the same of every total that a scan goes on from. The totals before the first turn are further operands,
        as far as there are any; the other scans begin with the identity.
      reverse: whether the last chunk comes first, as reverse scans need it.
      path: what explain calls it.
      stages: the mesh axes of a pipeline, whose devices hold stages: in turn `t` device `d` works on chunk `t - d`.
      ends: of a pass that only finds totals: its results are the last totals of `scans`.
      handed: positions of operands whose chunks enter the first stage; what the body makes of them, its first outputs,
        goes on to the next stage.
    """

    axis: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    body: Schedule
    rotating: tuple[int, ...]
    folds: tuple[tuple[int, int], ...]
    scans: tuple[tuple[int, int], ...]
    reverse: bool
    path: str
    stages: tuple[str, ...] = ()
    handed: tuple[int, ...] = ()
    ends: bool = False

    @property
    def folded(self) -> int:
        """The leaves of all states of `folds`, the first outputs of the body."""
        return sum(leaves for _, leaves in self.folds)

    @property
    def scanned(self) -> int:
        """The leaves of all totals of `scans`, the outputs behind them and the last inputs."""
        return sum(leaves for _, leaves in self.scans)

    @property
    def results_inside(self) -> tuple[int, ...]:
        """The outputs of the body that become results: all but the totals of scans, and what is handed on."""
        if self.ends:
            return self.body.outputs
        return self.body.outputs[: self.folded] + self.body.outputs[self.folded + self.scanned + len(self.handed) :]

    def turns(self, mesh: MeshShape) -> int:
        """How often the body runs; in a pipeline the last stage begins that much later than the first."""
        return turns_of(self.axis) + mesh.size(self.stages) - 1


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
      stage: of a pipeline: how all `layers` turns are divided among devices, `length` for each.
      layers: all turns of all stages.
      remat: whether the backward pass computes each turn again, from its carries and from what other devices have
        sent, instead of finding all that the turn has made.
      keeps: what of such a turn is kept besides, a name in `KEPT` of `planning/entries/remat.py`: the results of
        steps inside that are `kept`; or `RINGS`, that what came round rings is not.
      until: whether it ends before the first turn in which carry 0 holds, and takes `length` turns at most.
      stopped: of such a loop, whether no output depends on it differentiably.
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
    stage: Cut | None = None
    layers: int = 0
    remat: bool = False
    keeps: str = ""
    until: bool = False
    stopped: bool = False


Step = Convert | Run | Finish | Repeat | Region


@dataclass(frozen=True)
class Unit:
    """Consecutive steps that the backward pass computes again together, before their gradients.

    Kept is what they read, what other devices sent, and the results of those that are `kept`.

    Attributes:
      first: the number of the first step.
      end: the number behind the last one.
      path: the scope that they share.
      keeps: as in `Repeat`.
    """

    first: int
    end: int
    path: str
    keeps: str = ""


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
      again: what of the steps is computed again, beside repetitions that are; in order.
      platforms: that it is for, as lowering names them; empty where they are not known, and inside of loops. No part of
        what is equal: an abstract mesh is scheduled as the real one is.
    """

    graph: Graph = field(repr=False)
    mesh: MeshShape
    slots: tuple[Slot, ...]
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    again: tuple[Unit, ...] = ()
    platforms: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """What was found out about it, by whoever asks for it often."""
        return {}

    def made_for_itself(self) -> tuple[frozenset[int], ...]:
        """For each unit the slots that its steps make and nobody outside of it reads."""
        inside = {number: at for at, unit in enumerate(self.again) for number in range(unit.first, unit.end)}
        makers: dict[int, int] = {}
        for number, at in inside.items():
            makers.update(dict.fromkeys(self.steps[number].results, at))
        handed = {
            slot for n, step in enumerate(self.steps) for slot in step.operands if makers.get(slot) != inside.get(n)
        }
        made: list[set[int]] = [set() for _ in self.again]
        for slot, at in makers.items():
            if slot not in handed:
                made[at].add(slot)
        return tuple(frozenset(slots.difference(self.outputs)) for slots in made)
