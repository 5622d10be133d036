"""From one candidate to another near it, such that what it says can hold."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tapestry_jax.searching.finding.rules import LOOPS
from tapestry_jax.searching.space import Choice, Space

_SWAPPED = 0.15
"""The share of moves in which two dimensions change places."""


def near(space: Space, choice: Choice, rng: Random, excepted: float = 0.1) -> Choice:
    """One move at random: another value of a variable, or two dimensions that change places on the mesh.

    Args:
      space: of the candidate.
      choice: the candidate.
      rng: what draws.
      excepted: the share of moves that except operations.
    """
    placed = [at for at, each in enumerate(space.variables) if each.kind == "axes"]
    if len(placed) > 1 and rng.random() < _SWAPPED:
        return _swapped(space, choice, rng, placed)
    excepts = rng.random() < excepted
    own = [at for at, each in enumerate(space.variables) if (each.kind == "except") == excepts]
    at = rng.choice(own or list(range(len(space.variables))))
    return made_possible(space, moved(choice, at, rng.choice(space.variables[at].others(choice[at]))), at)


def steps(space: Space, choice: Choice, at: int) -> Iterator[Choice]:
    """The other values of a variable; of numbers between others those that are next to the one chosen."""
    for value in space.variables[at].others(choice[at]):
        yield made_possible(space, moved(choice, at, value), at)


def _swapped(space: Space, choice: Choice, rng: Random, placed: list[int]) -> Choice:
    first, second = rng.sample(placed, 2)
    values = space.variables[first].values, space.variables[second].values
    one, other = values[0][choice[first]], values[1][choice[second]]
    if other not in values[0] or one not in values[1]:
        return choice
    swapped = moved(moved(choice, first, values[0].index(other)), second, values[1].index(one))
    return made_possible(space, made_possible(space, swapped, first), second)


def made_possible(space: Space, choice: Choice, kept: int) -> Choice:
    """The same without what contradicts the variable `kept`, and without what then has no effect."""
    taken = list(choice)
    variables = space.variables
    changed, value = variables[kept], variables[kept].values[choice[kept]]
    axes = {each.name: each.values[taken[at]] for at, each in enumerate(variables) if each.kind == "axes" and taken[at]}
    if changed.kind == "axes" and value:
        for at, each in enumerate(variables):
            own = axes.get(each.name, ()) if each.kind == "axes" and each.name != changed.name else ()
            if not set(own).isdisjoint(value) and frozenset((each.name, changed.name)) in space.meetings:
                left = tuple(axis for axis in own if axis not in value) or None
                taken[at] = each.values.index(left) if left in each.values else 0
                axes[each.name] = each.values[taken[at]] or ()
    axes |= dict(space.fixed)
    _drop_idle(space, taken, axes)
    chunked = [at for at, each in enumerate(variables) if each.kind == "chunks" and taken[at] and at != kept]
    loops = len(chunked) + (changed.kind == "chunks" and taken[kept] > 0)
    for at in chunked[: max(loops - LOOPS, 0)]:
        taken[at] = 0
    return tuple(taken)


def _drop_idle(space: Space, taken: list[int], axes: dict[str, tuple[str, ...]]) -> None:
    """Drop stripes and halos of what is not cut, and rings on which nothing else lies."""
    for at, each in enumerate(space.variables):
        if not taken[at]:
            continue
        own = axes.get(each.name) or ()
        if each.kind in ("stripes", "halo") and not own:
            taken[at] = 0
        if each.kind == "ring":
            axis = each.values[taken[at]]
            others = (name for name, cut in axes.items() if name != each.name and axis in (cut or ()))
            if axis in own or not any(frozenset((each.name, name)) in space.meetings for name in others):
                taken[at] = 0


def moved(choice: Choice, at: int, value: int) -> Choice:
    """The same with another value of one variable."""
    return (*choice[:at], value, *choice[at + 1 :])
