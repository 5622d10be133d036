"""One thing of what is asked for, said otherwise: the moves around a plan that no choice of a space says as a whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from combinators.graphs import walk
from combinators.graphs.graph import Graph
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Chunks, Halo, Item, Ring, Striped, axes_of
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space, Variable, items_of

_TAKEN = "chunks", "ring", "stripes", "halo"
"""Kinds of variables that say how the pieces of a dimension are taken, wherever they lie."""


def around(problem: Problem, space: Space, base: Asked) -> Space:
    """The choices around what is asked for; zeros are the base itself.

    They are how pieces are taken, layers as stages, and what is computed again.

    Args:
      problem: what is searched.
      space: its choices.
      base: from another method; whatever it places stays where it is, but for mesh axes that stages take.
    """
    turns = turns_of(problem.graph)
    kinds = *_TAKEN, "remat"
    kept = (each for each in space.variables if each.kind in kinds or (each.kind == "axes" and each.name in turns))
    placed = tuple((name, axes_of(items)) for name, items in base.entries)
    return replace(space, variables=tuple(kept), fixed=placed, excepted=bool(base.ops), base=base)


def asked_around(problem: Problem, space: Space, base: Asked, choice: Sequence[int]) -> Asked:
    """What to ask of planning for a choice around a base: stages first, which free mesh axes."""
    pairs = [(each, at) for each, at in zip(space.variables, choice, strict=True) if at]
    for each, at in sorted(pairs, key=lambda pair: pair[0].kind != "axes"):
        base = altered(problem, base, each, each.values[at])
    return base


def altered(problem: Problem, asked: Asked, variable: Variable, value: Any) -> Asked:
    """The same with another value of a variable of `around`; what is fixed stays.

    Mesh axes that are given to layers, as stages, are taken from all that has them.
    """
    fixed, name = problem.fixed, variable.name
    if variable.kind == "remat":
        others = tuple(pair for pair in asked.remat if pair[0] != name)
        return replace(asked, remat=(*others, (name, value)))
    own = dict(fixed.ops)
    if variable.kind in _TAKEN:
        # Exceptions of other methods say where an operation lies: it is taken in time as all others are.
        entries = _taken(asked.entries, variable, value, (), add=True)
        ops = ((path, _taken(rows, variable, value, own.get(path, ()), add=False)) for path, rows in asked.ops)
        return replace(asked, entries=entries, ops=tuple(ops))
    entries = _freed(asked.entries, value, fixed.entries)
    ops = tuple((path, _freed(rows, value, own.get(path, ()))) for path, rows in asked.ops)
    layouts = dict(fixed.inputs)
    inputs = tuple((name, _freed(rows, value, layouts.get(name, ()))) for name, rows in asked.inputs)
    return replace(asked, entries=(*entries, (name, value)), ops=ops, inputs=inputs)


def _taken(rows: Entries, variable: Variable, value: Any, kept: Entries, *, add: bool) -> Entries:
    """Entries of which those of one dimension say otherwise how its pieces are taken."""
    name = variable.name
    found = tuple(
        (dim, _items(name, items, variable.kind, value)) if dim == name and (dim, items) not in kept else (dim, items)
        for dim, items in rows
    )
    missing = add and all(dim != name for dim, _ in rows)
    return (*found, (name, _items(name, (), variable.kind, value))) if missing else found


def _items(name: str, items: Sequence[Item], kind: str, value: Any) -> tuple[Item, ...]:
    """The entry of a dimension with one of its items set; another number of chunks takes the place of the first."""
    chosen: dict[tuple[str, str, tuple[str, ...]], Any] = {("axes", name, ()): axes_of(items)}
    for item in items:
        match item:
            case Ring(axis):
                chosen["ring", name, ()] = axis
            case Chunks(count) if count is not None:
                chosen["chunks", name, ()] = count
            case Halo(depth):
                chosen["halo", name, ()] = depth
            case Striped():
                chosen["stripes", name, ()] = True
            case _:
                pass
    chosen[kind, name, ()] = value
    return items_of(name, chosen)


def _freed(entries: Entries, axes: Collection[str], kept: Entries) -> Entries:
    """Entries without some mesh axes, but for those that are kept as they are."""
    return tuple(
        pair if pair in kept else (pair[0], tuple(item for item in pair[1] if not _is_on(item, axes)))
        for pair in entries
    )


def _is_on(item: Item, axes: Collection[str]) -> bool:
    return not set(axes_of((item,)) if not isinstance(item, Ring) else (item.axis,)).isdisjoint(axes)


def turns_of(graph: Graph) -> set[str | None]:
    """The dimensions over which loops run."""
    return {loop.over for _, loop in walk.loops(graph)}
