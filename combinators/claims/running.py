"""Programs that are run beside each other, in the first way in which they can be: what their numbers tell."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from combinators.declared.boxed import runner
from combinators.declared.runnable import RaisesError, apart, ways
from combinators.equations.effort import Effort

Run: TypeAlias = "Callable[[Sequence[Any]], list[Any]]"

# What all runs of one question in NumPy may take, in small equations.
_EFFORT = 1 << 18


def told(programs: Sequence[Any], asked: Callable[[Sequence[Run]], Iterable[bool]], times: int = 1) -> bool:
    """Whether runs of some programs are known to differ.

    Args:
      programs: closed jaxprs; of None, which could not be traced, nothing is known.
      asked: from a run of each to whether they differ, for one draw of operands after the other.
      times: how many draws have to differ: what one does by chance, as at a kink, is not known.
    """
    if None in programs:
        return False
    for way in ways(programs):
        try:
            with apart(), np.errstate(all="ignore"):
                effort = Effort(_EFFORT)
                found = filter(None, asked([runner(program, way, effort) for program in programs]))
                return len(list(itertools.islice(found, times))) == times
        except RaisesError:
            continue
    return False
