"""The candidates that a search passed over: what a plan that was found carries, and its page lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combinators.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tapestry_jax.machines.machine import Machine
    from tapestry_jax.planning.derivatives.positions import Positions


@dataclass(frozen=True)
class Candidate:
    """A plan that was evaluated, and is not the one that was found.

    Attributes:
      otherwise: what it asks for otherwise than the plan that was found, as `plan.diff` says it.
      seconds: of one run.
      bytes: of memory that a device needs; None where it was not weighed.
      why: it was not taken.
    """

    otherwise: tuple[str, ...]
    seconds: float
    bytes: int | None
    why: str


@dataclass(frozen=True)
class Weighed:
    """What a search weighed beside the plan that it found; text and numbers, from which nothing is planned again.

    Attributes:
      machine: whose prices counted.
      grad: what gradients were taken by, as in `plan.cost`.
      candidates: the cheapest first.
    """

    machine: Machine
    grad: Positions
    candidates: tuple[Candidate, ...]

    def is_priced_like(self, machine: Machine | None, grad: bool | int | Sequence[int]) -> bool:
        """Whether seconds of the candidates stand beside those on this machine; True is all arguments, 1 is one."""
        return machine == self.machine and repr(grad) == repr(self.grad)

    def __str__(self) -> str:
        return f"{self.machine.name}{' with gradients' * (self.grad is not False)}"
