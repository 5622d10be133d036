"""Calls that only wrap a program."""

from __future__ import annotations

from typing import Any

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


_REMAT = ("checkpoint", "remat", "remat2", "remat_opt", "custom_vmap_call")
TABLE = dict.fromkeys((*WRAPPERS, *_REMAT), inlined)
