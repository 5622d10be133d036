"""What a method of search is: a function from a problem to proposals, best first by its own estimate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import field

from combinators.frozen import dataclass
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space


@dataclass(frozen=True)
class Bound:
    """A proof: no plan of the space takes less.

    Attributes:
      seconds: the bound.
      complete: whether every plan of the space is proposed: what does not fit into memory then bounds the rest.
    """

    seconds: float
    complete: bool = False


Proposal = Asked | Bound
"""A candidate, or a bound on all of them; the largest bound holds."""


@dataclass(frozen=True)
class Stop:
    """When a method is to come to its end: `stop()` asks.

    Attributes:
      limit: seconds from the beginning; None for no limit.
      began: on the clock of `time.monotonic`.
      tell: called whenever a method asks, to show how it goes.
    """

    limit: float | None = None
    began: float = field(default_factory=time.monotonic)
    tell: Callable[[], None] | None = None

    def __call__(self) -> bool:
        """Whether the time is over."""
        if self.tell is not None:
            self.tell()
        return self.limit is not None and time.monotonic() - self.began >= self.limit


Method = Callable[[Problem, Space, int, Stop], Iterable[Proposal]]
"""`method(problem, space, seed, stop)` gives proposals; it may evaluate what it likes on the way (`evaluate`)."""
