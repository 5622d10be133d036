"""How far a stream is, and all that it needs to go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.protocols import Array


@dataclass(frozen=True)
class Position:
    """How far a stream is.

    Attributes:
      part: the number of the part of the schedule that is under way.
      turns: how many turns of it are done; 0 before a part that does not turn.
    """

    part: int = 0
    turns: int = 0


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A stream between two turns. Its arrays are those of the run, which gives them away with the next turn.

    Attributes:
      position: how far it is.
      values: on the devices, by slot: what parts before have made and later ones read.
      state: what the pass that is under way carries; empty before its first turn.
    """

    position: Position
    values: Mapping[int, Any]
    state: tuple[Any, ...]

    def arrays(self) -> dict[str, Array]:
        """Copies of all arrays on the host, by name: `value/<slot>` and `state/<leaf>`."""
        named = {f"value/{slot}": array for slot, array in self.values.items()}
        named |= {f"state/{number}": array for number, array in enumerate(self.state)}
        return {name: np.array(array) for name, array in named.items()}


@dataclass(frozen=True, eq=False)
class Stopped:
    """Where a run begins that goes on from another.

    Attributes:
      position: how far the other came.
      arrays: as `Snapshot.arrays` names them.
    """

    position: Position
    arrays: Mapping[str, Array]


class Keeper(Protocol):
    """Who keeps snapshots. Asked after every turn."""

    def is_due(self, position: Position) -> bool:
        """Whether this position is to be kept. What was written until then is flushed first."""
        ...

    def is_stopped(self) -> bool:
        """Whether the run is to end now, of which nothing is under way: `keep` ends it."""
        ...

    def keep(self, snapshot: Snapshot) -> None:
        """Keep it; the arrays of the snapshot are valid until this returns."""
        ...
