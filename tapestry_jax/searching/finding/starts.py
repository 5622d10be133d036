"""Where walks begin: candidates of several kinds, each judged by what a short descent makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random

from tapestry_jax.searching.finding.descent import descend
from tapestry_jax.searching.finding.energy import Energies
from tapestry_jax.searching.finding.moves import made_possible, moved
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.space import Choice, Space

EACH = 24
"""So many candidates are planned at most to judge one of those to begin from."""


def begin(known: Energies, rng: Random, stop: Stop, first: float, judged: float) -> None:
    """Try what there is to begin from, and go downhill a little from the best of each kind.

    Args:
      known: what was found so far; its best is where to go on from.
      rng: in which order variables are changed.
      stop: when to end.
      first: so many candidates are planned at most to begin from.
      judged: so many together with those of the short descents.
    """
    variables = known.space.variables
    tried: list[Choice] = []
    for start in (known.start, *starts(known.space)):
        if stop() or known.tried >= first:
            break
        if math.isfinite(known.of(start)):
            tried.append(start)
            continue
        # Stages of a pipeline are refused without chunks that flow through them.
        tried += itertools.takewhile(lambda _: not stop(), filled(known.space, start))
    for start in promising(known, tried):
        also = [at for at, each in enumerate(variables) if each.kind == "axes" or start[at]]
        descend(known, rng, stop, start, min(known.tried + EACH, judged), also)


def starts(space: Space) -> Iterator[Choice]:
    """Candidates to begin from: one dimension on the mesh, parameters cut for storage or not, layers kept or not.

    From one of them to another lead walks of which every single step is dearer.
    """
    stored = next((at for at, each in enumerate(space.variables) if each.kind == "stored"), None)
    again = [at for at, each in enumerate(space.variables) if each.kind == "remat"]
    for value in range(
        max((len(each.values) for each in space.variables if each.kind == "axes"), default=0) - 1, 0, -1
    ):
        for at, each in enumerate(space.variables):
            if each.kind == "axes" and value < len(each.values):
                placed = made_possible(space, moved(space.nothing, at, value), at)
                yield placed
                if stored is not None:
                    cut = moved(placed, stored, len(space.variables[stored].values) - 1)
                    yield cut
                    for layers in again:
                        cut = moved(cut, layers, 1)
                    if again:
                        yield cut


def filled(space: Space, start: Choice) -> Iterator[Choice]:
    """A candidate with one dimension more in chunks, neither few nor many."""
    for at, each in enumerate(space.variables):
        if each.kind == "chunks" and not start[at]:
            yield made_possible(space, moved(start, at, (each.coarse + 1) // 2), at)


def promising(known: Energies, tried: list[Choice]) -> list[Choice]:
    """The best of each kind, first those that would be the best if what is free of the mesh were used to the full.

    Of one kind are those that choose the same kinds of things, and use the same mesh axes.
    """
    kinds: dict[tuple[frozenset[str], frozenset[str]], Choice] = {}
    for choice in sorted(tried, key=known.of):
        if math.isfinite(known.of(choice)):
            kinds.setdefault((_kinds(known.space, choice), _used(known.space, choice)), choice)
    return sorted(kinds.values(), key=lambda choice: known.of(choice) - math.log(free(known, choice)))


def _kinds(space: Space, choice: Choice) -> frozenset[str]:
    return frozenset(kind for kind, _, _ in space.chosen(choice))


def _used(space: Space, choice: Choice) -> frozenset[str]:
    own = (value for (kind, _, _), value in space.chosen(choice).items() if kind == "axes")
    return frozenset(axis for axes in (*own, *(axes for _, axes in space.fixed)) for axis in axes)


def free(known: Energies, choice: Choice) -> int:
    """How many devices stand along mesh axes on which nothing lies."""
    shape = known.problem.shape
    return shape.size(tuple(axis for axis in shape.names if axis not in _used(known.space, choice)))
