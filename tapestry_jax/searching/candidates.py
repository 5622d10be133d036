"""From a candidate of a space to what a user would have written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tapestry_jax.plan import plan_of
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Chunks, Halo, Item, Ring, Striped, axes_of
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.searching.evaluated import Refused, evaluate
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space, Variable, items_of
from tapestry_jax.stored import stored_over

SMALLEST = 1024
"""Parameters with fewer elements are not cut for storage: they cost little memory, and a collective each."""


def asked_for(problem: Problem, space: Space, choice: Sequence[int]) -> Asked | Refused:
    """What to ask of planning for a candidate: what the user fixed, and what was chosen behind it.

    Parameters are stored as `tp.fsdp` would, which looks at how the rest of the candidate reads them.
    """
    chosen, fixed = space.chosen(choice), problem.fixed
    names = dict.fromkeys(name for kind, name, _ in chosen if kind in ("axes", "ring", "chunks", "halo"))
    entries = tuple((name, items) for name in names if (items := items_of(name, chosen)))
    excepted: dict[str, Entries] = {}
    for (kind, name, paths), value in chosen.items():
        for path in paths if kind == "except" else ():
            excepted[path] = (*excepted.get(path, ()), (name, value))
    asked = replace(
        fixed,
        entries=(*fixed.entries, *entries),
        ops=(*((path, (*own, *excepted.pop(path, ()))) for path, own in fixed.ops), *excepted.items()),
        remat=(*fixed.remat, *((name, value) for (kind, name, _), value in chosen.items() if kind == "remat")),
    )
    over = chosen.get(("stored", "", ()))
    return asked if over is None else _stored(problem, asked, over)


def _stored(problem: Problem, asked: Asked, over: tuple[str, ...]) -> Asked | Refused:
    found = evaluate(problem, asked)
    if isinstance(found, Refused):
        return found
    plan = plan_of(problem.graph, problem.mesh, asked, found.schedule)
    added = stored_over(plan, over, smallest=SMALLEST)
    return replace(asked, inputs=tuple((dict(asked.inputs) | added).items()))


def choice_of(space: Space, asked: Asked) -> tuple[int, ...]:
    """The candidate of a space that is nearest to what was asked for: what the space cannot say is left out."""
    entries, remat, ops = dict(asked.entries), dict(asked.remat), dict(asked.ops)

    def wanted(variable: Variable) -> Any:
        items = entries.get(variable.name, ())
        match variable.kind:
            case "axes":
                return axes_of(items)
            case "remat":
                return remat.get(variable.name)
            case "except":
                return dict(ops.get(variable.paths[0], ())).get(variable.name)
            case "stripes":
                return any(isinstance(item, Striped) for item in items) or None
            case _:
                return next((part for item in items if (part := _part(item, variable.kind)) is not None), None)

    found = ((each.values, wanted(each)) for each in space.variables)
    return tuple(values.index(value) if value in values else 0 for values, value in found)


def _part(item: Item, kind: str) -> Any:
    match item:
        case Ring(axis):
            return axis if kind == "ring" else None
        case Chunks(count):
            return count if kind == "chunks" else None
        case Halo(depth):
            return depth if kind == "halo" else None
        case _:
            return None
