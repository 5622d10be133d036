"""What is added up while a schedule is priced: costs by operation, each with its place."""

from __future__ import annotations

from combinators.frozen import dataclass
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.prediction.collectives import Place
from tapestry_jax.planning.pricing.cost import OperationCost
from tapestry_jax.planning.pricing.placed import Loop, Work


@dataclass(frozen=True)
class Room:
    """Seconds of computing, behind which something may pass.

    Attributes:
      forward: of the forward pass.
      backward: of the backward pass, with what any loop around computes again.
      again: of one forward pass more, of what is computed again at all.
      kept: of that, what layers keep that are computed again.
    """

    forward: float = 0.0
    backward: float = 0.0
    again: float = 0.0
    kept: float = 0.0

    def __add__(self, other: Room) -> Room:
        again, kept = self.again + other.again, self.kept + other.kept
        return Room(self.forward + other.forward, self.backward + other.backward, again, kept)

    def times(self, share: float) -> Room:
        """A share of each."""
        return Room(share * self.forward, share * self.backward, share * self.again, share * self.kept)

    def in_ring(self, turns: int, outside: int) -> Room:
        """What a ring of so many turns has: in its last turn nothing is sent on.

        Nor does it send in a turn that one of the `outside` loops around it computes again, but where layers have rings
        turn again: that passes behind what they compute again.
        """
        share = (turns - 1) / turns
        backward = self.backward - outside * self.again + self.kept
        return Room(self.forward * share, backward * share, self.again * share)


@dataclass(frozen=True)
class Around:
    """The loops around a schedule.

    Attributes:
      times: how often all of them run it together.
      again: how many of them the backward pass runs again.
      loops: the loops in time and how often each turns.
      idle: the share of the turns in which a stage of a pipeline has nothing to do.
      place: of the innermost of them.
    """

    times: int
    again: int
    loops: tuple[tuple[str, int], ...]
    idle: float
    place: Place = ()


class Sums:
    """What has been added up so far."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.operations: dict[str, OperationCost] = {}
        self.works: list[tuple[Place, Work]] = []
        self.loops: list[tuple[Place, Loop]] = []
        self.rings: dict[Place, Room] = {}
        self.layers: dict[Place, Room] = {}
        self.bubble = 0.0

    def add(
        self, place: Place, around: Around, cost: OperationCost, *, again: bool = False, kept: bool = False
    ) -> Room:
        """Add what a step costs in all its turns; `again` and `kept` as in `Work`."""
        known = self.operations.get(cost.path)
        self.operations[cost.path] = cost if known is None else together(known, cost)
        self.works.append((place, Work(cost, again, kept)))
        self.bubble += around.idle * cost.seconds
        return Room(cost.forward, cost.backward + cost.again, cost.forward * again, cost.forward * (again and kept))


def together(first: OperationCost, second: OperationCost) -> OperationCost:
    """Two steps of one path, such as the turns of a deep halo."""
    return OperationCost(
        first.path,
        first.times + second.times,
        first.flops + second.flops,
        first.bytes + second.bytes,
        first.forward + second.forward,
        first.backward + second.backward,
        first.again + second.again,
        first.limit if first.forward >= second.forward else second.limit,
        first.redundant + second.redundant,
        first.reread + second.reread,
    )
