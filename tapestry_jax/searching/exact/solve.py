"""The least that a model takes, with a proof of how far from it what was found may be.

Without integers the program takes a moment, and nearly says the answer: most options are chosen whole. From its prices
of rows follows what every solution takes at least, and at least more that uses a given variable. So a solution within
some share of that bound can be made of few of the variables. The integer program over these alone is solved, with a
share that grows until nothing outside of it can be better by more than is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.searching.exact.highs import run
from tapestry_jax.searching.exact.model import Model
from tapestry_jax.searching.exact.program import Program, Rows, program_of

GAP = 0.009
"""The share of its price by which a solution may miss the bound: less than one in a hundred, since the schedule
may take a little longer than the model says."""
_FIRST, _GROWS = 0.01, 3.0
"""The first share of the bound within which solutions are looked for, and how it grows where that is too little."""
_MORE = 1e-6
"""So much more, since numbers are rounded."""
_FINER = 0.1
"""Of the gap, how much the solver may leave of what it is given."""


@dataclass(frozen=True)
class Solution:
    """What the solver found.

    Attributes:
      choice: an option for each pick; empty where it found none.
      seconds: of it, in the model.
      bound: no choice takes less; infinite where nothing fits, 0 where nothing is known.
      is_interrupted: whether an interrupt (`KeyboardInterrupt`) ended it.
    """

    choice: tuple[int, ...]
    seconds: float
    bound: float
    is_interrupted: bool = False


def solve(
    model: Model,
    memory: float = math.inf,
    *,
    than: float = math.inf,
    gap: float = GAP,
    limit: float = math.inf,
    without: Sequence[Sequence[int]] = (),
) -> Solution:
    """Solve a model.

    Args:
      model: the choices and their prices.
      memory: bytes that what stays on a device may take.
      than: seconds of a plan that is known already: what does not take less is not looked for.
      gap: the share of its price by which what is found may miss the least; the bound is proved whatever is found.
      limit: seconds after which what was found so far is given.
      without: choices that may not be given again.
    """
    ends, program = time.monotonic() + limit, program_of(model, memory, without)
    rows, most = program.rows, np.array(program.rows.most)
    relaxed = run(rows, most=most, limit=limit)
    if relaxed.bound == math.inf:
        return Solution((), math.inf, math.inf)
    if not len(relaxed.prices):
        return Solution((), math.inf, 0.0, relaxed.is_interrupted)
    least, more = proved(rows, relaxed.prices)
    best = _rounded(model, program, relaxed.values, memory, without)
    bound, share, start, is_interrupted = least, _FIRST, None, relaxed.is_interrupted
    while not is_interrupted and time.monotonic() < ends:
        # The nearest choice alone is good enough only where it is as good as what the solver would find.
        if bound >= _wanted(model, program, min(best.seconds, than), gap * (1.0 if share > _FIRST else _FINER)):
            break
        reach = least + share * max(least, 1.0)
        out = least + more > reach
        left = ends - time.monotonic()
        found = run(rows, most=np.where(out, 0.0, most), is_integral=True, limit=left, gap=_FINER * gap, start=start)
        if len(found.values):
            start = found.values
            best = min(best, _chosen(model, program, start), key=lambda each: each.seconds)
        bound = max(bound, min(found.bound, reach if out.any() else math.inf))
        is_interrupted, wanted = found.is_interrupted, _wanted(model, program, min(best.seconds, than), gap)
        if reach >= wanted or not out.any():
            break
        share = min(_GROWS * share, (wanted - least) / max(least, 1.0) + _MORE)
    return Solution(best.choice, best.seconds, program.scale * bound + model.constant, is_interrupted)


def _wanted(model: Model, program: Program, known: float, gap: float) -> float:
    """The bound, in units of the program, at which a solution of `known` seconds is good enough."""
    return (1 - gap) * known / program.scale - model.constant / program.scale


def proved(rows: Rows, prices: Any) -> tuple[float, Any]:
    """What every solution takes at least, by the prices of rows, and for each variable what more it takes if it is 1.

    A sum of rows, each times its price, bounds what a solution takes, whatever the prices are: the word of the solver
    is not needed for it, nor its tolerances. Of what is neither 0 nor 1 a solution may use next to nothing: that takes
    no more.
    """
    prices = np.where(np.isinf(rows.lower), np.minimum(prices, 0.0), prices)
    prices = np.where(np.isinf(rows.upper), np.maximum(prices, 0.0), prices)
    counts = np.diff(rows.starts)
    weights = np.array(rows.values) * np.repeat(prices, counts)
    more = np.array(rows.cost) - np.bincount(rows.indices, weights, len(rows.cost))
    sides = np.where(prices > 0, rows.lower, np.where(prices < 0, rows.upper, 0.0))
    least = float(prices @ sides + np.minimum(more, 0.0) @ np.array(rows.most))
    more[rows.amounts] = 0.0
    return least, more


def _rounded(model: Model, program: Program, values: Any, memory: float, without: Sequence[Sequence[int]]) -> Solution:
    """The choice that is nearest, where it is one and fits."""
    found = _chosen(model, program, values)
    fits = memory == math.inf or model.held(found.choice) <= memory
    is_new = not any(found.choice == tuple(each) for each in without)
    return found if fits and is_new and found.seconds < math.inf else Solution((), math.inf, 0.0)


def _chosen(model: Model, program: Program, values: Any) -> Solution:
    choice = tuple(int(np.argmax(values[own])) for own in program.options)
    return Solution(choice, model.price(choice), 0.0)
