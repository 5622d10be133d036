"""What is kept of a job: who it is, what it reads and writes, how far it is, and what it has computed so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Position:
    """How far a job is.

    It counts passes and cells, not chunks and devices, so that another chunk size can go on from it.

    Attributes:
      step: the number of the pass that is under way; all before it are finished.
      cells: the place in the streamed dimension between what is done and what is left of it.
      finished: whether all is done.
    """

    step: int = 0
    cells: int = 0
    finished: bool = False


@dataclass(frozen=True)
class Frozen:
    """Everything that a job needs to go on.

    Attributes:
      job: what it computes, by part: keys of the graph, of the plan, and whatever else decides the result.
      sources: the fingerprints of what it reads, by name.
      sinks: where what it writes lies, by name.
      position: how far it is.
      arrays: what it has computed and no sink holds, by name: states of folds, totals of scans, small values.
    """

    job: Mapping[str, str]
    sources: Mapping[str, str]
    sinks: Mapping[str, str]
    position: Position
    arrays: Mapping[str, np.ndarray]
