"""Sums of products."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.monoids import Sum
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.primitives import Params, plain, run
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, signature, types_of


@dataclass(frozen=True)
class Contraction:
    """`lax.dot_general` with its own dimension numbers, which hold no sizes.

    Attributes:
      params: of the primitive.
    """

    params: Params

    def __call__(self, left: Any, right: Any, *, preferred_element_type: Any = None) -> Any:
        """The sums of products over a block."""
        params = self.params
        if preferred_element_type is not None:
            params = (*params, ("preferred_element_type", jnp.dtype(preferred_element_type)))
        return run("dot_general", params, (left, right))[0]


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
    kernel = Contraction(params)
    operation = Operation(told, kernel, Sum if folds else None, pad=(0, 0) if folds else None, name="dot_general")
    return walk.leaf(operation, atoms, [out])


TABLE = {"dot_general": dot_general}
