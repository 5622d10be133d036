"""Which floats a program computes with, and whether their range is wide enough to scale results afterwards."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import is_program


def keeps_range(closed: Any) -> bool:
    """Whether every float of a program, however deep inside, has at least the exponents of float32.

    Products with a scale then commute with what the program computes, but for rounding, as far as float32 itself
    reaches. float16 and the floats of 8 bits and less do not, bfloat16 does.
    """
    least = jnp.finfo(jnp.float32)
    kinds = [jnp.finfo(dtype) for dtype in _dtypes(closed.jaxpr, set()) if is_inexact(dtype)]
    return all(kind.maxexp >= least.maxexp and kind.minexp <= least.minexp for kind in kinds)


def _dtypes(jaxpr: Any, seen: set[int]) -> set[Any]:
    """The dtypes of all values of a program; programs inside that are shared are looked at once."""
    seen.add(id(jaxpr))
    atoms = [*jaxpr.constvars, *jaxpr.invars, *(atom for eqn in jaxpr.eqns for atom in (*eqn.invars, *eqn.outvars))]
    found = {atom.aval.dtype for atom in atoms if hasattr(atom.aval, "dtype")}
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
            inner = getattr(value, "jaxpr", value)
            if is_program(value) and id(inner) not in seen:
                found |= _dtypes(inner, seen)
    return found
