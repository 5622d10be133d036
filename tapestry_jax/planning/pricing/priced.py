"""The price of a schedule: every operation by its roofline, every collective by the links it goes over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from combinators.errors import PlanError, message
from tapestry_jax.machines.laid import lay
from tapestry_jax.machines.machine import Machine
from tapestry_jax.machines.transfer import seconds as transfer_seconds
from tapestry_jax.planning.derivatives.gradients import differentiated
from tapestry_jax.planning.geometry.changes import Deal, Exchange, Gather, Overlap
from tapestry_jax.planning.geometry.time_axis import ring_of, turns_of
from tapestry_jax.planning.prediction.collectives import Place, placed_collectives
from tapestry_jax.planning.prediction.flow import Flow, flow_of, flow_of_body, flow_of_region
from tapestry_jax.planning.pricing.combined import combined
from tapestry_jax.planning.pricing.converted import converting_bytes, is_converted
from tapestry_jax.planning.pricing.cost import Cost, OperationCost, TransferCost
from tapestry_jax.planning.pricing.counting.counts import Counts
from tapestry_jax.planning.pricing.keys import Key, counts_key
from tapestry_jax.planning.pricing.marginal import block_counts
from tapestry_jax.planning.pricing.overlapped import overlapped, share_of_layers
from tapestry_jax.planning.pricing.placed import Loop, Priced
from tapestry_jax.planning.pricing.roofline import Seconds, block_bytes, inner_bytes, roofline, runs_as_one, stays
from tapestry_jax.planning.pricing.sums import Around, Room, Sums
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Run, Schedule, Step


def price(schedule: Schedule, machine: Machine, grad: bool | int | Sequence[int] = False) -> Cost:
    """Price a schedule.

    Args:
      schedule: of a plan.
      machine: where it runs.
      grad: as in `plan.collectives`.

    Returns:
      Seconds by operation and by collective.

    Raises:
      MeshError: when the mesh does not fill the machine.
      PlanError: when a price is no number.
    """
    return priced(schedule, machine, grad).cost


def priced(schedule: Schedule, machine: Machine, grad: bool | int | Sequence[int] = False) -> Priced:
    """The same, with what every step takes."""
    laid = lay(machine, schedule.mesh.axes)
    sources = {schedule.inputs[i] for i in differentiated(schedule.graph, grad)}
    sums = Sums(machine)
    _add(schedule, flow_of(schedule, sources), sums, Around(1, 0, (), 0.0))
    places: list[Place] = []
    transfers: list[TransferCost] = []
    # Looked up by what differs: to hash the machine with it takes longer than to price a collective.
    known: dict[tuple[str, tuple[str, ...], int], float] = {}
    for place, each in placed_collectives(schedule, grad, bounds=False):
        key = each.kind, each.axes, each.bytes
        if key not in known:
            known[key] = transfer_seconds(laid, *key)
        took = each.times * known[key]
        places.append(place)
        said = each.path, *key, each.times, each.backward
        transfers.append(TransferCost(*said, took, alike=each.alike, again=each.again))
    sent = combined(schedule, laid, zip(places, transfers, strict=True))
    cost = Cost(
        schedule.graph.name,
        machine.name,
        str(schedule.mesh),
        str(laid),
        bool(sources),
        tuple(sums.operations.values()),
        tuple(overlapped(schedule, tuple(zip(places, sent, strict=True)), sums)),
        sums.bubble,
    )
    check(cost)
    return Priced(cost, tuple(sums.works), tuple(sums.loops), tuple(zip(places, cost.transfers, strict=True)))


def check(cost: Cost) -> None:
    """Refuse a cost that is no number, before anything is compared with it.

    Raises:
      PlanError: with the operations whose price is none.
    """
    if math.isfinite(cost.seconds):
        return
    strange = [each for each in (*cost.operations, *cost.transfers) if not math.isfinite(each.seconds)]
    raise PlanError(
        message(
            f"the cost of `{cost.name}` on {cost.machine} is no number",
            *(f"{each.path}: {each.seconds} s" for each in strange[:8]),
            remedy="Report it, with the program: every count and figure should be finite.",
        )
    )


def _add(schedule: Schedule, flow: Flow, sums: Sums, around: Around) -> Room:
    """Add up a schedule; returns the seconds of all its turns."""
    scope = _Scope(schedule, sums.machine)
    total = Room()
    units = {number for unit in schedule.again for number in range(unit.first, unit.end)}
    computed_again = replace(around, again=around.again + 1)
    for number, step in enumerate(schedule.steps):
        place = (*around.place, number)
        here = computed_again if number in units else around
        match step:
            case Run():
                if any(slot in flow.live for slot in step.results) and not is_barrier(schedule.graph.nodes[step.node]):
                    smooth = any(map(flow.carries_gradient, step.results))
                    found = _of_run(scope, step, flow, here)
                    total += sums.add(place, here, found, again=smooth, kept=step.kept)
            case Repeat():
                if step.length:
                    total += _of_repeat(schedule, step, flow, sums, around, place)
            case Region():
                total += _of_region(schedule, step, flow, sums, here, place)
            case Convert():
                copied = copied_bytes(schedule, step)
                if copied and step.result in flow.live:
                    back = flow.carries_gradient(step.source) and step.result in flow.useful
                    found = _of_copy(step.path, copied, sums.machine, around, back=back)
                    total += sums.add(place, around, found)
            case _:
                pass
    return total


def copied_bytes(schedule: Schedule, step: Convert) -> float:
    """Bytes that a change of layout reads and writes on the device itself, beside what it sends."""
    moves = any(isinstance(change, Exchange | Deal | Overlap | Gather) for change in step.changes)
    # A block and what neighbours sent are put together; blocks for others are cut out.
    return 2.0 * schedule.slots[step.result].local_bytes if moves else 0.0


def _of_copy(path: str, size: float, machine: Machine, around: Around, *, back: bool) -> OperationCost:
    """A copy in every turn; `back`, and another one in its backward pass."""
    took = around.times * size / machine.streams
    moved = around.times * size * (1 + back)
    return OperationCost(path, around.times, 0.0, moved, took, took * back, 0.0, "memory")


def _of_repeat(schedule: Schedule, step: Repeat, flow: Flow, sums: Sums, around: Around, place: Place) -> Room:
    inside = flow_of_body(step, flow)
    smooth = any(map(flow.carries_gradient, step.results))
    again = step.remat and smooth
    sums.loops.append((place, Loop(step.length, again, layers=step.remat)))
    entered = Around(around.times * step.length, around.again + again, around.loops, around.idle, place)
    total = _add(step.body, inside, sums, entered)
    sums.layers[place] = total.times(share_of_layers(step.length))
    for position in range(step.carries, step.carries + len(step.axes)):
        if is_converted(step.body, inside, position, sums.machine):
            # Once, before all loops around; laid out in time it is shared by their turns.
            size = converting_bytes(schedule.slots[step.operands[position]].local_bytes) / entered.times
            total += sums.add(place, entered, _of_copy(step.path, size, sums.machine, entered, back=False))
    stacked = _stacked(step, inside) if smooth else 0.0
    if stacked:
        total += sums.add(place, entered, _of_copy(step.path, stacked, sums.machine, entered, back=True))
    return total


def _stacked(step: Repeat, inside: Flow) -> float:
    """Bytes that a turn writes to the stacks of what all turns keep; its gradient reads as many."""
    body = step.body
    kept = set(body.inputs[: step.carries])
    kept |= {
        slot for each in body.steps if isinstance(each, Run) and (each.kept or not step.remat) for slot in each.results
    }
    return 1.0 * sum(body.slots[slot].local_bytes for slot in kept if slot in inside.forward and slot in inside.useful)


def _of_region(schedule: Schedule, step: Region, flow: Flow, sums: Sums, around: Around, place: Place) -> Room:
    turns, stages = step.turns(schedule.mesh), schedule.mesh.size(step.stages)
    smooth = any(map(flow.carries_gradient, step.results))
    # Gradients of a loop that ends in a scalar are computed in its own turns; else the turns are computed again.
    scalar = all(not schedule.slots[slot].local_shape for slot in step.results)
    again, ring = smooth and not scalar, ring_of(step.axis)
    sums.loops.append((place, Loop(turns, again, inside=smooth and scalar, ring=ring, stages=step.stages)))
    idle = around.idle + (1 - around.idle) * (stages - 1) / turns
    loops = (*around.loops, (step.axis, turns_of(step.axis)))
    entered = Around(around.times * turns, around.again + again, loops, idle, place)
    total = _add(step.body, flow_of_region(step, flow), sums, entered)
    if ring is not None:
        sums.rings[place] = total.in_ring(turns, around.again)
    return total


class _Scope:
    """A schedule, with who makes and reads every value, and the counts of its operations."""

    def __init__(self, schedule: Schedule, machine: Machine) -> None:
        self.schedule = schedule
        self.machine = machine
        self.outputs = frozenset(schedule.outputs)
        self.readers: dict[int, list[Step]] = {}
        self.makers: dict[int, Run] = {}
        self._keys: dict[int, tuple[Key, Counts]] = {}
        self._fused: dict[int, bool] = {}
        for step in schedule.steps:
            for slot in step.operands:
                self.readers.setdefault(slot, []).append(step)
            if isinstance(step, Run):
                self.makers.update(dict.fromkeys(step.results, step))

    def counted(self, step: Run) -> tuple[Key, Counts]:
        """What the counts of a step depend on, and they."""
        found = self._keys.get(id(step))
        if found is None:
            key = counts_key(self.schedule, step, self.machine.platform)
            found = self._keys[id(step)] = key, block_counts(*key)
        return found

    def stays(self, slot: int) -> bool:
        """Whether a value that is written stays on the chip until it is read."""
        if slot in self.outputs or slot not in self.makers:
            return False
        return stays(self.machine, self.schedule.slots[slot].local_bytes)

    def is_fused(self, slot: int) -> bool:
        """Whether a value stays inside of a kernel: made and read by two operations that XLA runs as one."""
        if slot not in self._fused:
            self._fused[slot] = self._is_fused(slot)
        return self._fused[slot]

    def _is_fused(self, slot: int) -> bool:
        maker, readers = self.makers.get(slot), self.readers.get(slot, ())
        if maker is None or slot in self.outputs or len(readers) != 1 or maker.carried:
            return False
        (reader,) = readers
        if not isinstance(reader, Run) or is_barrier(self.schedule.graph.nodes[reader.node]):
            return False
        if maker.axes and any(dim in dict(maker.cuts) for dim in _folds(self.schedule, maker)):
            # Devices merge it before anybody reads it.
            return False
        (_, made), (_, read) = self.counted(maker), self.counted(reader)
        place = maker.results.index(slot)
        head = made.heads[place] if place < len(made.heads) else "apart"
        return runs_as_one(self.machine.platform, head, read.heads, read.reads)


def _folds(schedule: Schedule, step: Run) -> tuple[str, ...]:
    return tuple(schedule.graph.shaped(step.node).signature.fold_dims)


def _of_run(scope: _Scope, step: Run, flow: Flow, around: Around) -> OperationCost:
    schedule, machine = scope.schedule, scope.machine
    key, counts = scope.counted(step)
    smooth = any(map(flow.carries_gradient, step.results))
    moved, near = inner_bytes(machine, counts), 0.0
    for place, (times, size) in enumerate(zip(counts.reads, _array_bytes(key), strict=True)):
        slot = step.operands[place] if place < len(step.operands) else None
        if slot is not None and scope.is_fused(slot):
            continue
        if slot is not None and scope.stays(slot):
            near += times * size
        else:
            moved += times * size
    for slot in step.results:
        # What the backward pass reads is written, fused or not; layers stack it in memory.
        kept = flow.carries_gradient(slot)
        if scope.is_fused(slot) and not kept:
            continue
        if scope.stays(slot) and not (kept and around.place):
            near += schedule.slots[slot].local_bytes
        else:
            moved += schedule.slots[slot].local_bytes
    forward = roofline(machine, counts, moved, near)
    back, back_counts, back_moved = backward_of(step, flow, machine, key, stacks=bool(around.place))
    runs = 1 + (around.again - step.kept if smooth else 0)
    return OperationCost(
        step.path,
        around.times,
        around.times * (runs * counts.flops + back_counts.flops),
        around.times * (runs * moved + back_moved),
        around.times * forward.total,
        around.times * back.total,
        around.times * (runs - 1) * forward.total,
        forward.limit,
        around.times * _redundant(step, machine, key, forward, (moved, near)),
        _reread(schedule, step, around, key),
    )


def _array_bytes(key: Key) -> tuple[int, ...]:
    operation, operands, _, sizes = key
    return block_bytes(operation, operands, sizes)


def backward_of(step: Run, flow: Flow, machine: Machine, key: Key, *, stacks: bool) -> tuple[Seconds, Counts, float]:
    """What the gradient of a step takes, its counts, and the bytes it moves; `stacks`, inside of a loop."""
    by = tuple(place for place, slot in enumerate(step.operands) if flow.carries_gradient(slot))
    if not by or not any(map(flow.carries_gradient, step.results)):
        return Seconds(0.0, ""), Counts(), 0.0
    operation, operands, part, sizes = key
    arrays = sum(operand.coordinate is None for operand in operation.signature.operands)
    counts = block_counts(operation, operands, replace(part, by=tuple(place for place in by if place < arrays)), sizes)
    moved = inner_bytes(machine, counts)
    # What layers keep lies in stacks; else TPUs' compilers keep on the chip what fits.
    near = counts.outer if not stacks and stays(machine, counts.outer) else 0.0
    return roofline(machine, counts, moved - near, near), counts, moved - near


def _redundant(step: Run, machine: Machine, key: Key, forward: Seconds, moved: tuple[float, float]) -> float:
    """Seconds for indices before and behind the block that a neighbour computes as well."""
    wide = {
        dim: cut.block for dim, cut in step.cuts if cut.window is not None and (cut.window.before or cut.window.after)
    }
    if not wide:
        return 0.0
    operation, operands, part, sizes = key
    narrow = tuple((dim, min(size, wide.get(dim, size))) for dim, size in sizes)
    share = math.prod(size for _, size in narrow) / max(math.prod(size for _, size in sizes), 1)
    needed = roofline(machine, block_counts(operation, operands, part, narrow), *(share * size for size in moved))
    return max(forward.total - needed.total, 0.0)


def _reread(schedule: Schedule, step: Run, around: Around, key: Key) -> float:
    """Bytes of operands that no loop around the step cuts, read in every turn of it."""
    if not around.loops:
        return 0.0
    total = 0.0
    for slot, size in zip(step.operands, _array_bytes(key), strict=False):
        cut = {axis for each in schedule.slots[slot].layout.cuts if each is not None for axis in each.axes}
        turns = math.prod(count for axis, count in around.loops if axis not in cut)
        total += size * (around.times - around.times / turns)
    return total
