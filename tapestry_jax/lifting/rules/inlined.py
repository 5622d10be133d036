"""Calls that only wrap a program, and branches of which one is known to run."""

from __future__ import annotations

from typing import Any

import numpy as np

from combinators.kernels.jaxprs import WRAPPERS, programs_inside
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk


def inlined(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """What is inside, in the place of the call."""
    found = list(programs_inside(equation))
    if len(found) != 1:
        return None
    inner = found[0]
    return walk.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), atoms)


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


_REMAT = ("checkpoint", "remat", "remat2", "remat_opt", "custom_vmap_call")
TABLE = dict.fromkeys((*WRAPPERS, *_REMAT), inlined) | {"platform_index": platform}
