"""Sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from combinators.monoids import Sum
from combinators.operations.dense import Dense
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.grouped import Grouped, WholeGroups
from tapestry_jax.lifting.kernels.primitives import Params, plain
from tapestry_jax.lifting.kernels.products import Products
from tapestry_jax.lifting.rules.named import apply
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, signature, types_of


def dot_general(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Batch axes and free axes are mapped, contracted ones folded with Sum."""
    (out,) = types_of(equation)
    params = plain(equation.params)
    if params is None or out.dtype == jnp.bool_:
        return None
    return walk.leaf(product_of(params, [walk.shape(atom) for atom in atoms], out.shape), atoms, [out])


def product_of(params: Params, shapes: Sequence[Sequence[int]], out: Sequence[int]) -> Operation:
    """A `dot_general` on operands of these shapes."""
    (left_folded, right_folded), (left_batch, right_batch) = dict(params)["dimension_numbers"]
    left, right = ([""] * len(shape) for shape in shapes)
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
        [axes(shape, names, bare=result) for shape, names in zip(shapes, (left, right), strict=True)],
        [axes(out, result, bare=result)],
    )
    folds = bool(told.fold_dims)
    kernel = Products("dot_general", params)
    return Operation(told, kernel, Sum if folds else None, pad=(0, 0) if folds else None, name="dot_general")


def ragged_dot(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Rows in groups, each with a matrix of its own: groups and what is contracted are folded, rows are mapped.

    Where rows are contracted, as in its gradient, they are folded and groups mapped. How many rows each group has is
    whole; which of them a block has it is told by coordinates.
    """
    (out,), told = types_of(equation), equation.params
    numbers, sums = told["ragged_dot_dimension_numbers"], told["preferred_element_type"]
    if len(atoms) != 3 or told["group_offset"] is not None or walk.dtype(walk.value(atoms[2])).itemsize < 4:
        return None  # JAX adds sizes up in their own dtype, and what comes out of 8 or 16 bits depends on the cut
    (left_folded, right_folded), (left_batch, right_batch) = numbers.dot_dimension_numbers
    rows, shape = int(numbers.lhs_ragged_dimensions[0]), walk.shape(atoms[2])
    left, right = ([""] * len(walk.shape(atom)) for atom in atoms[:2])
    for letter, pairs in (("b", (left_batch, right_batch)), ("k", (left_folded, right_folded))):
        for number, (i, j) in enumerate(zip(*pairs, strict=True)):
            left[i] = right[j] = f"{letter}{number}"
    is_folded, shared = rows in left_folded, [left[axis] for axis in left_batch]
    before = [axis for axis in range(rows) if axis not in (*left_batch, *([] if is_folded else left_folded))]
    if rows in left_batch or (len(shape) > 1 and (before or len(shape) != 1 + len(shared))):
        return None  # other axes have sizes of their own
    for axis in numbers.rhs_group_dimensions:
        right[axis] = "g"
    left = [name or f"m{axis}" for axis, name in enumerate(left)]
    right = [name or f"n{axis}" for axis, name in enumerate(right)]
    free = [name for names, letter in ((left, "m"), (right, "n")) for name in names if name[0] == letter]
    result = [*(["g"] if is_folded else []), *shared, *free]
    prefix = tuple(map(int, left_batch)) if len(shape) > 1 else ()
    ragged, batch = (rows,), (prefix,)
    if is_folded:
        ragged += (int(right_folded[list(left_folded).index(rows)]),)
        batch += (tuple(map(int, right_batch)) if len(shape) > 1 else (),)
    kernel = WholeGroups(numbers, told["precision"], None if sums is None else jnp.dtype(sums).name)
    operands = [(atoms[0], left), (atoms[1], right), (atoms[2], [*(shared if prefix else ()), "s"])]
    return apply(
        walk,
        "ragged_dot",
        Grouped(kernel, ragged, batch),
        operands,
        [(out, result)],
        whole={"s"},
        at=[left[rows], "g"],
        monoid=Sum,
        dense=(Dense(kernel, whole=(left[rows], "g")),),
    )


TABLE = {"dot_general": dot_general, "ragged_dot_general": ragged_dot}
