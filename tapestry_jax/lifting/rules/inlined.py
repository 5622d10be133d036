"""Calls that only wrap a program, and branches of which one is known to run."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from combinators.kernels.jaxprs import WRAPPERS, programs_inside
from tapestry_jax.lifting.callables.scopes import scope_of
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk


def inlined(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """What is inside, in the place of the call."""
    found = list(programs_inside(equation))
    if len(found) != 1:
        return None
    inner = found[0]
    return walk.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), atoms)


def checkpointed(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """What is inside, under a path of its own where modules give it none: by that a plan computes it again."""
    if any(map(_is_named, programs_inside(equation))):
        return inlined(walk, equation, atoms)
    own = f"{walk.scope}/checkpoint".lstrip("/")
    path = next(path for number in itertools.count() if (path := f"{own}_{number}") not in walk.regions)
    walk.regions.add(path)
    walk.scope = path
    return inlined(walk, equation, atoms)


def _is_named(program: Any) -> bool:
    """Whether modules, or scopes that users opened, stand inside."""
    equations = getattr(program, "jaxpr", program).eqns
    return any(scope_of(own, "", "") or any(map(_is_named, programs_inside(own))) for own in equations)


def platform(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Which program of a `lax.platform_dependent` runs: the one for all platforms, since a graph belongs to none."""
    del walk, atoms
    platforms = equation.params["platforms"]
    return [np.int32(len(platforms) - 1)] if platforms[-1] is None else None


def chosen(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """The branch of a `cond` whose number is known, in the place of them all."""
    branches = equation.params["branches"]
    taken = branches[min(max(int(atoms[0]), 0), len(branches) - 1)]
    return walk.run(taken.jaxpr, taken.consts, atoms[1:])


_REMAT = ("checkpoint", "remat", "remat2", "remat_opt")
TABLE = (
    dict.fromkeys((*WRAPPERS, "custom_vmap_call"), inlined)
    | dict.fromkeys(_REMAT, checkpointed)
    | {"platform_index": platform}
)
