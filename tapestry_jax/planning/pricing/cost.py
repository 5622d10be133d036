"""What a plan costs: a value that prints as a table and is stored as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from combinators.frozen import dataclass

_ROWS = 40


@dataclass(frozen=True)
class OperationCost:
    """What an operation computes, in all its turns, on one device.

    Attributes:
      path: of the operation.
      times: how often it runs forwards.
      flops: forwards and backwards, those that are computed again too.
      bytes: moved between the device and its memory, in the same way.
      forward: seconds.
      backward: seconds of the gradient.
      again: seconds of what the backward pass computes again.
      limit: what the forward pass waits for: `products`, `arithmetic`, `memory` or `start`.
      redundant: seconds for indices that a neighbour computes as well.
      reread: bytes that loops read again in every turn after the first.
    """

    path: str
    times: int
    flops: float
    bytes: float
    forward: float
    backward: float
    again: float
    limit: str
    redundant: float = 0.0
    reread: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.forward + self.backward + self.again


@dataclass(frozen=True)
class TransferCost:
    """What a collective takes, in all its turns.

    Attributes:
      path: the operation that causes it.
      kind: as in `Collective`.
      axes: the mesh axes.
      bytes: per device and execution.
      times: executions.
      backward: whether it belongs to the gradient.
      seconds: of all executions.
      hidden: of these, how many pass while the device computes.
      alike: as in `Collective`.
      again: as in `Collective`.
    """

    path: str
    kind: str
    axes: tuple[str, ...]
    bytes: int
    times: int
    backward: bool
    seconds: float
    hidden: float = 0.0
    alike: int = 1
    again: bool = False


@dataclass(frozen=True)
class Cost:
    """What a plan costs on a machine.

    Attributes:
      name: of the program.
      machine: its name.
      mesh: its shape.
      lies: how the mesh lies on the machine.
      gradients: whether gradients are counted in.
      operations: by path, in the order of the program.
      transfers: in the order of `plan.collectives`.
      bubble: seconds in which stages of a pipeline wait for the first or the last of them; part of `compute`.
    """

    name: str
    machine: str
    mesh: str
    lies: str
    gradients: bool
    operations: tuple[OperationCost, ...]
    transfers: tuple[TransferCost, ...]
    bubble: float = 0.0

    @property
    def compute(self) -> float:
        """Seconds of computing on one device."""
        return sum(each.seconds for each in self.operations)

    @property
    def communication(self) -> float:
        """Seconds of all transfers."""
        return sum(each.seconds for each in self.transfers)

    @property
    def hidden(self) -> float:
        """Seconds of transfers that pass while the device computes."""
        return sum(each.hidden for each in self.transfers)

    @property
    def seconds(self) -> float:
        """Seconds of one run: computing, and the transfers that it does not hide."""
        return self.compute + self.communication - self.hidden

    @property
    def communication_by_axis(self) -> dict[tuple[str, ...], float]:
        """Seconds of transfers by mesh axes."""
        found: dict[tuple[str, ...], float] = {}
        for each in self.transfers:
            found[each.axes] = found.get(each.axes, 0.0) + each.seconds
        return found

    def to_json(self) -> str:
        """The cost as text, totals included."""
        totals: dict[str, Any] = {
            "seconds": self.seconds,
            "compute": self.compute,
            "communication": self.communication,
            "hidden": self.hidden,
        }
        return json.dumps({"cost": 1, **totals, **dataclasses.asdict(self)}, indent=1)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(cost: Cost) -> Iterator[str]:
    yield f"{cost.name} on {cost.machine}, {cost.mesh}{', with gradients' * cost.gradients}"
    yield f"  {cost.lies}"
    yield f"one run: {duration(cost.seconds)}"
    yield (
        f"  computing {duration(cost.compute)}, transfers {duration(cost.communication)}, "
        f"of which {duration(cost.hidden)} behind computing"
    )
    if cost.bubble:
        yield f"  in the computing, {duration(cost.bubble)} of bubble: stages that wait"
    redundant = sum(each.redundant for each in cost.operations)
    if redundant:
        yield f"  in the computing, {duration(redundant)} of what neighbours compute as well"
    reread = sum(each.reread for each in cost.operations)
    if reread:
        yield f"  {reread:.3g} B are read again by later turns of loops"
    for axes, seconds in cost.communication_by_axis.items():
        yield f"  transfers over {'+'.join(axes)}: {duration(seconds)}"
    rows = sorted(cost.operations, key=lambda each: -each.seconds)
    width = max((len(each.path) for each in rows[:_ROWS]), default=9)
    header = (f"{name:>{size}}" for name, size in (("FLOP", 9), ("bytes", 9), ("forward", 10), ("backward", 10)))
    yield f"{'operation':<{width}}  {'  '.join(header)}  {'again':>10}  waits for"
    for each in rows[:_ROWS]:
        times = f"  x{each.times}" if each.times > 1 else ""
        yield (
            f"{each.path:<{width}}  {each.flops:>9.3g}  {each.bytes:>9.3g}  {duration(each.forward):>10}  "
            f"{duration(each.backward):>10}  {duration(each.again):>10}  {each.limit}{times}"
        )
    if len(rows) > _ROWS:
        yield f"  and {len(rows) - _ROWS} more, {duration(sum(each.seconds for each in rows[_ROWS:]))}"
    for each in sorted(cost.transfers, key=lambda each: -each.seconds)[:_ROWS]:
        times = f" x{each.times}" if each.times > 1 else ""
        yield (
            f"{each.kind} over {'+'.join(each.axes)}, {each.bytes:,} B{times}: {duration(each.seconds)}"
            f"{f', {duration(each.hidden)} hidden' if each.hidden else ''}, {each.path}{' (gradient)' * each.backward}"
        )


def duration(seconds: float) -> str:
    """Three figures and a unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0"
