"""Reductions by a function: where it and what it starts from are a known monoid, a fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from combinators import monoids
from combinators.merging.monoid import Monoid
from tapestry_jax.lifting.control.inside import Written, written
from tapestry_jax.lifting.control.monoids import cells_of, known_monoid
from tapestry_jax.lifting.kernels.bits import BITS_AND, BITS_OR, BITS_XOR
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk

_FOLDS: tuple[tuple[Monoid, Callable[..., Any]], ...] = (
    (monoids.Sum, lax.reduce_sum),
    (monoids.Prod, lax.reduce_prod),
    (monoids.Max, lax.reduce_max),
    (monoids.Min, lax.reduce_min),
    (monoids.Any, lax.reduce_or),
    (monoids.All, lax.reduce_and),
    (BITS_OR, lax.reduce_or),
    (BITS_AND, lax.reduce_and),
    (BITS_XOR, lax.reduce_xor),
)
"""How JAX folds by a monoid."""


def reduced(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Each tensor folded by what the function does to it; None where one is no known monoid, or reads another tensor.

    JAX leaves open what comes out of a start that is no identity: compilers merge it or not, derivatives leave it out.
    So what is folded starts from the identity, a number; where no axis goes nothing is done.
    """
    axes, count = tuple(int(axis) for axis in equation.params["dimensions"]), len(atoms) // 2
    if not axes:
        return atoms[:count]
    function = equation.params["jaxpr"]
    if function.effects or any(map(np.ndim, function.consts)):
        return None
    body, folds = written(walk, function, "reduce"), list[Any]()
    for at, (atom, start) in enumerate(zip(atoms[:count], atoms[count:], strict=True)):
        kind = jax.ShapeDtypeStruct(walk.shape(atom), walk.dtype(atom))
        fold = _fold(body, at, count, kind.dtype, start)
        if fold is None:
            return None
        folds.append(jax.make_jaxpr(lambda x, fold=fold: fold(x, axes))(kind))
    return [walk.run(told.jaxpr, (), [atom])[0] for told, atom in zip(folds, atoms[:count], strict=True)]


def _fold(body: Written, at: int, count: int, dtype: Any, start: Atom) -> Callable[..., Any] | None:
    cells = cells_of(body, (at,))
    monoid = None if cells is None else known_monoid(cells, (at,), count, (dtype,))[1]
    found = next((fold for known, fold in _FOLDS if known is monoid), None)
    if monoid is None or type(start) is int:  # a value, not a number
        return None
    return found if start == monoid.identity_for(jax.ShapeDtypeStruct((), dtype)) else None


TABLE = {"reduce": reduced}
