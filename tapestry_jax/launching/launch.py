"""What `tapestry launch` is asked for, and what its exit status says."""

from __future__ import annotations

from collections.abc import Mapping

from combinators.errors import TapestryError
from combinators.frozen import dataclass

STUCK = 124
"""The exit status where a rank was stuck, as of `timeout`."""


class LaunchError(TapestryError):
    """A group of processes that cannot be started."""


@dataclass(frozen=True)
class Launch:
    """A group of processes to be started and watched.

    Attributes:
      words: the command of every rank.
      processes: how many ranks are started here; None for the one that a cluster has asked for, which JAX finds itself.
      devices: CPU devices of each rank; None for what the environment says.
      restarts: how often all are started again after a rank has died or was stuck.
      stuck: seconds without a sign of life after which a rank is stuck; None for never.
      grace: seconds between a request to end and SIGKILL.
      environment: of the supervisor, which each rank gets with more in it.
    """

    words: tuple[str, ...]
    processes: int | None
    devices: int | None
    restarts: int
    stuck: float | None
    grace: float
    environment: Mapping[str, str]
