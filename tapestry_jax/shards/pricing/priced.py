"""The price of a sharded graph: its blocks by their roofline, what devices send by the links that it goes over."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass
from tapestry_jax.machines.laid import Laid, lay
from tapestry_jax.machines.machine import Machine
from tapestry_jax.machines.transfer import seconds as transfer_seconds
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.pricing.cost import Cost, OperationCost, TransferCost
from tapestry_jax.planning.pricing.overlapped import share_behind, share_of_layers
from tapestry_jax.planning.pricing.priced import check
from tapestry_jax.planning.pricing.sums import together
from tapestry_jax.shards.lowered.layout import is_empty
from tapestry_jax.shards.parts import Block, Merge, Move, Present, Program, Repeat, Shared, Step
from tapestry_jax.shards.pricing.computed import Reading, turns_of_loop
from tapestry_jax.shards.pricing.cuts import bytes_of, mesh_of
from tapestry_jax.shards.pricing.live import check_order, live_in_body, live_pieces
from tapestry_jax.shards.pricing.sent import Sent, scattered, sent_by_chain, sent_by_merge, sent_by_move

_PUT_TOGETHER = frozenset(("all-gather", "all-to-all", "neighbours"))
"""Moves that read and write a device's own memory as well."""


def price(shared: Shared, program: Program, machine: Machine) -> Cost:
    """Price a sharded graph, forwards.

    Args:
      shared: coordinates and operations.
      program: its steps.
      machine: where it runs.

    Raises:
      MeshError: when the mesh does not fill the machine.
      PlanError: when a price is no number.
    """
    mesh = mesh_of(shared)
    laid = lay(machine, mesh.axes)
    pricing = _Pricing(shared, mesh, machine, laid)
    pricing.add(program, live_pieces(program, (piece for _, piece in program.outputs)))
    operations, transfers = tuple(pricing.operations.values()), tuple(pricing.hidden())
    cost = Cost(
        program.name, machine.name, str(mesh), str(laid), False, operations, transfers, sum(pricing.bubbles)
    )  # fmt: skip
    check(cost)
    return cost


@dataclass(frozen=True, eq=False)
class _Pricing:
    """What has been added up so far.

    Attributes:
      shared: as in the graph.
      mesh: its axes.
      machine: where it runs.
      laid: the mesh on it.
      operations: by path.
      transfers: with the loop behind whose computing they pass, or nothing.
      inside: seconds of computing by loop.
      bubbles: seconds in which stages of pipelines wait.
    """

    shared: Shared
    mesh: MeshShape
    machine: Machine
    laid: Laid
    operations: dict[str, OperationCost] = field(default_factory=dict[str, OperationCost])
    transfers: list[tuple[str, TransferCost]] = field(default_factory=list[tuple[str, TransferCost]])
    inside: dict[str, float] = field(default_factory=dict[str, float])
    bubbles: list[float] = field(default_factory=list[float])

    def add(self, program: Program, live: frozenset[int], repeat: Repeat | None = None) -> None:
        """Add what the steps of a program compute and send that make `live` pieces; of the body of a `repeat`."""
        check_order(program)
        reading = Reading(self.shared, program, self.machine, live, repeat)
        folds: dict[tuple[int, int], int] = {}
        sent: set[Hashable] = set()
        for number, step in enumerate(program.steps):
            if not reading.needs(step):
                continue
            match step:
                case Block():
                    made = [program.pieces[piece] for piece in step.results]
                    folds.update({(each.value, each.substep): number for each in made})
                    often = self._times(step.loops) * (1 + self._first_pass(step))
                    self._compute(reading.cost(number, step, often), step.loops)
                    if not any(is_empty(each.box) for each in made):
                        self._chain(reading, number, step)
                case Move():
                    self._move(reading, step, sent)
                case Merge():
                    after = program.steps[number + 1] if number + 1 < len(program.steps) else None
                    first = program.pieces[step.sources[0]]
                    self._merge(reading, step, after, folds[first.value, first.substep])
                case Repeat():
                    # The steps inside have its turns among their loops.
                    self.add(step.body, live_in_body(step, [piece in live for piece in step.results]), step)
                case _:
                    pass

    def _times(self, loops: Sequence[str]) -> int:
        kinds, counts = self.shared.kinds, self.shared.counts
        return math.prod(turns_of_loop(kinds[loop], counts) for loop in loops)

    def _compute(self, cost: OperationCost, loops: Sequence[str]) -> None:
        known = self.operations.get(cost.path)
        self.operations[cost.path] = cost if known is None else together(known, cost)
        for loop in loops:
            self.inside[loop] = self.inside.get(loop, 0.0) + cost.seconds
            each = self.shared.kinds[loop]
            if each.kind == "pipeline":
                self.bubbles.append(cost.seconds * (1 - each.count / turns_of_loop(each, self.shared.counts)))

    def _send(self, path: str, sent: Sent, times: int, behind: str = "") -> None:
        if not sent.bytes or not sent.axes or not times:
            return
        times *= sent.alike
        took = times * transfer_seconds(self.laid, sent.kind, sent.axes, sent.bytes)
        each = TransferCost(path, sent.kind, sent.axes, sent.bytes, times, False, took, alike=sent.alike)
        self.transfers.append((behind, each))

    def _move(self, reading: Reading, step: Move, sent: set[Hashable]) -> None:
        program = reading.program
        source, result = program.pieces[step.source], program.pieces[step.result]
        if is_empty(source.box) or is_empty(result.box):
            return
        # What is the same in all turns of the loop around is moved once, before it.
        early = reading.is_constant(step.source)
        loops = result.loops[:-1] if early else result.loops
        ring = loops[-1] if step.how == ("ring",) else ""
        often = self._times(loops[:-1]) * (self.shared.kinds[ring].count - 1) if ring else self._times(loops)
        behind = ring or self._layers(reading, step)
        for key, each in sent_by_move(self.shared, program, step, self.mesh):
            # XLA merges what sends the same of one value.
            if key is None or (step.source, key) not in sent:
                self._send(step.path, each, often, behind)
            sent.add((step.source, key))
        if not early and not _PUT_TOGETHER.isdisjoint(step.how):
            # A block and what others sent are put together on the device.
            times = self._times(loops)
            size = 2.0 * times * bytes_of(program, result)
            took = size / self.machine.streams
            self._compute(OperationCost(step.path, times, 0.0, size, took, 0.0, 0.0, "memory"), loops)

    def _layers(self, reading: Reading, step: Move) -> str:
        """The loop over layers whose own parameters a move brings together, behind another of its turns."""
        loops = reading.program.pieces[step.result].loops
        is_hidden = reading.is_slice(step.source) and share_behind(self.machine, "all-gather", backward=False)
        return loops[-1] if is_hidden else ""

    def _merge(self, reading: Reading, step: Merge, after: Step | None, fold: int) -> None:
        program = reading.program
        over = [axis for axis in step.over if self.shared.kinds[axis].kind == "axis"]
        result = program.pieces[step.results[0]]
        if not self.mesh.real(over) or is_empty(result.box):
            return
        often, known = self._times(result.loops), reading.counted[fold]
        live = [*range(len(known.shaped.results))]
        if isinstance(after, Present):
            live = [number for number, piece in enumerate(after.results) if piece in reading.live]
            one = scattered(self.shared, program, step.sources[0], after.results[0], over)
            if one is not None:
                self._send(step.path, one, often)
                return
        for each in sent_by_merge(known, over, self.mesh, live):
            self._send(step.path, each, often)

    def _first_pass(self, step: Block) -> bool:
        """Whether a scan goes on over the mesh and in time: a pass over its loops finds the totals first."""
        kinds = self.shared.kinds
        return {kinds[axis].kind == "axis" for axis in step.chain if kinds[axis].count > 1} == {True, False}

    def _chain(self, reading: Reading, number: int, step: Block) -> None:
        kinds = self.shared.kinds
        if not any(kinds[axis].kind == "axis" and kinds[axis].count > 1 for axis in step.chain):
            return
        outside = [loop for loop in step.loops if loop not in step.chain]
        live = [place for place, piece in enumerate(step.results) if piece in reading.live]
        for each in sent_by_chain(reading.counted[number], self.mesh, live, in_turns=self._first_pass(step)):
            self._send(step.path, each, self._times(outside))

    def hidden(self) -> Iterator[TransferCost]:
        """The transfers, with what of them passes behind the computing of the loops that they stand in."""
        kinds = self.shared.kinds
        # The last turn of a ring sends nothing on; the first layer's gather has no other layer to pass behind.
        left = {
            loop: self.inside.get(loop, 0.0) * share_of_layers(kinds[loop].count) for loop, _ in self.transfers if loop
        }
        for loop, each in self.transfers:
            if loop:
                is_ring = kinds[loop].kind == "ring"
                share = 1.0 if is_ring else share_behind(self.machine, each.kind, backward=False)
                taken = min(share * each.seconds, left[loop])
                left[loop] -= taken
                each = replace(each, hidden=taken)
            yield each
