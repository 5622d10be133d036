"""A price with its places: what every step of a schedule takes, and how the loops around it turn."""

from __future__ import annotations

from combinators.frozen import dataclass
from tapestry_jax.planning.prediction.collectives import Place
from tapestry_jax.planning.pricing.cost import Cost, OperationCost, TransferCost


@dataclass(frozen=True)
class Work:
    """What a device computes at one place.

    Attributes:
      cost: in all turns of all loops around it.
      again: whether the backward pass of a loop around it may run it again.
      kept: whether layers that are computed again keep its results, and so do not.
    """

    cost: OperationCost
    again: bool = False
    kept: bool = False


@dataclass(frozen=True)
class Loop:
    """How a loop turns.

    Attributes:
      turns: in the order of the schedule, those of a pipeline in which stages wait too.
      again: whether the backward pass runs each turn forwards once more.
      inside: whether the gradient is computed in the loop's own turns.
      layers: whether it is such a repetition of layers as keeps the results of some operations.
      ring: the mesh axis of a ring.
      stages: the mesh axes of a pipeline.
    """

    turns: int
    again: bool
    inside: bool = False
    layers: bool = False
    ring: str | None = None
    stages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Priced:
    """A cost, and what it was added up from.

    Attributes:
      cost: the sums.
      works: by place, in the order of the schedule; of a loop, what it does in each turn beside its body.
      loops: by place.
      transfers: in the order of `cost.transfers`, with the places that send them.
    """

    cost: Cost
    works: tuple[tuple[Place, Work], ...]
    loops: tuple[tuple[Place, Loop], ...]
    transfers: tuple[tuple[Place, TransferCost], ...]
