"""Sums of products."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.monoids import Sum
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.primitives import plain
from tapestry_jax.lifting.kernels.products import Products
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, signature, types_of


def dot_general(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Batch axes and free axes are mapped, contracted ones folded with Sum."""
    (out,) = types_of(equation)
    params = plain(equation.params)
    if params is None or out.dtype == jnp.bool_:
        return None
    (left_folded, right_folded), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = ([""] * len(walk.shape(atom)) for atom in atoms)
    result: list[str] = []
    for number, (i, j) in enumerate(zip(left_batch, right_batch, strict=True)):
        left[i] = right[j] = f"b{number}"
        result.append(f"b{number}")
    for number, (i, j) in enumerate(zip(left_folded, right_folded, strict=True)):
        left[i] = right[j] = f"k{number}"
    for names, letter in ((left, "m"), (right, "n")):
        for axis, name in enumerate(names):
            if not name:
                names[axis] = f"{letter}{axis}"
                result.append(names[axis])
    told = signature(
        [axes(walk.shape(atom), names, bare=result) for atom, names in zip(atoms, (left, right), strict=True)],
        [axes(out.shape, result, bare=result)],
    )
    folds = bool(told.fold_dims)
    kernel = Products("dot_general", params)
    operation = Operation(told, kernel, Sum if folds else None, pad=(0, 0) if folds else None, name="dot_general")
    return walk.leaf(operation, atoms, [out])


TABLE = {"dot_general": dot_general}
