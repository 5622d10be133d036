"""Programs that are run beside each other, in the first way in which they can be: what their numbers tell."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from combinators.claims.pallas import interpreting
from combinators.declared.runnable import INTERPRETED, RaisesError, apart, raising, ways
from combinators.equations.effort import Effort
from combinators.equations.evaluate import Watch, evaluator
from combinators.kernels.jaxprs import as_function

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


def runner(program: Any, way: str, effort: Effort, watch: Watch | None = None) -> Callable[[Sequence[Any]], list[Any]]:
    """What runs a closed jaxpr on arrays in one of its `ways`; in NumPy as long as some `effort` is left.

    There what data choose may be watched.
    Whatever the program raises it raises as `RaisesError`.
    """
    with raising():
        program = interpreting(program)
        function = evaluator(program, effort, watch) if way == INTERPRETED else jax.jit(as_function(program))

    def run(arrays: Sequence[Any]) -> list[Any]:
        with raising():
            # What is computed later would raise where it is compared.
            return function(arrays) if way == INTERPRETED else jax.block_until_ready(list(function(*arrays)))

    return run
