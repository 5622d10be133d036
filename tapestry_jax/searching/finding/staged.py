"""Layers as stages: where all of the mesh could make them cheaper, what the integer program places on the rest of it.

What another method found lies on all of the mesh, and every single step from there to stages is dearer. From stages
alone every single step may end far from the best as well: all that one layer cuts has to go together. So the program is
solved once more for the mesh axes that stages leave, and a descent goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.evaluated import Evaluated, evaluate
from tapestry_jax.searching.exact.milp import placed_beside
from tapestry_jax.searching.finding.altered import altered, around, turns_of
from tapestry_jax.searching.finding.descent import descend
from tapestry_jax.searching.finding.energy import Energies
from tapestry_jax.searching.finding.moves import moved
from tapestry_jax.searching.finding.starts import filled, free, promising
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Choice, Space

_PROPOSED = 2
_PURSUED = "chunks", "remat"
"""What is looked at around stages: how many pieces flow through them, and what is computed again."""


def staged(problem: Problem, space: Space, lowest: float, stop: Stop, most: int) -> Iterator[Asked]:
    """Candidates with layers as stages that are cheaper than what is known.

    Args:
      problem: what is searched.
      space: its choices.
      lowest: the least energy so far.
      stop: when to end.
      most: so many candidates are planned to begin from, and as many more around each of these.
    """
    known = Energies(problem, space, lowest)
    for start in promising(known, _alone(known, stop, most)):
        if stop() or known.of(start) - math.log(free(known, start)) >= known.lowest:
            break
        base = _solved(problem, space, start, stop)
        if base is not None:
            found = _pursued(problem, space, start, base, known.lowest, stop, most)
            known.lowest = min(known.lowest, found.lowest)
            yield from found.ranked(_PROPOSED)
        else:
            among = [at for at, each in enumerate(space.variables) if each.kind == "axes" or start[at]]
            descend(known, None, stop, start, known.tried + most, among)
    if known.lowest < lowest:
        yield from known.ranked(_PROPOSED)


def _alone(known: Energies, stop: Stop, most: int) -> list[Choice]:
    """Stages alone, with each of what may flow through them."""
    space, turns = known.space, turns_of(known.problem.graph)
    tried: list[Choice] = []
    for at, each in enumerate(space.variables):
        for value in range(1, len(each.values)) if each.kind == "axes" and each.name in turns else ():
            for start in filled(space, moved(space.nothing, at, value)):
                if stop() or known.tried >= most:
                    return tried
                tried += [start] if math.isfinite(known.of(start)) else []
    return tried


def _solved(problem: Problem, space: Space, start: Choice, stop: Stop) -> Asked | None:
    """Stages, and what the program places on the mesh axes that they leave: as it says, or by name alone."""
    chosen = [(each, each.values[at]) for each, at in zip(space.variables, start, strict=True) if at]
    stages = [axis for each, value in chosen if each.kind == "axes" for axis in value]
    flows = [each.name for each, _ in chosen if each.kind == "chunks"]
    placed = placed_beside(problem, stages, flows, stop)
    found: list[Evaluated] = []
    for asked in () if placed is None else (placed, _by_name(problem, placed)):
        for each, value in chosen:
            asked = altered(problem, asked, each, value)
        candidate = evaluate(problem, asked)
        found += [candidate] if isinstance(candidate, Evaluated) else []
    return min(found, key=lambda each: each.seconds).asked if found else None


def _by_name(problem: Problem, asked: Asked) -> Asked:
    """The same without exceptions and layouts: pieces may want others than the whole."""
    return replace(asked, ops=problem.fixed.ops, inputs=problem.fixed.inputs)


def _pursued(
    problem: Problem, space: Space, start: Choice, base: Asked, lowest: float, stop: Stop, most: int
) -> Energies:
    """What a descent makes of it; from the number of pieces that it has others are reached."""
    near = around(problem, space, base)
    known = Energies(problem, near, lowest)
    pieces = {key: value for key, value in space.chosen(start).items() if key[0] == "chunks"}
    here = tuple(
        each.values.index(pieces[key]) if (key := (each.kind, each.name, each.paths)) in pieces else 0
        for each in near.variables
    )
    known.of(here)
    among = [at for at, each in enumerate(near.variables) if each.kind in _PURSUED and _matters(base, each.name)]
    descend(known, None, stop, here, most, among)
    return known


def _matters(base: Asked, name: str) -> bool:
    """Whether a dimension is said to be cut or taken in pieces there already, or is none."""
    return all(dim != name or items for dim, items in base.entries)
