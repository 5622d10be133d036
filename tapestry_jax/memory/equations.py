"""What compilers ask of an equation: whether a library of kernels knows it, which operands of products are copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

_SUMS = frozenset(("add", "add_any"))
_BINARY = frozenset(("sub", "mul", "div", "max", "min", "pow"))
_UNARY = frozenset(
    (
        "abs", "ceil", "convert_element_type", "cos", "erf", "exp", "expm1", "floor", "integer_pow", "log", "log1p",
        "logistic", "neg", "rsqrt", "sign", "sin", "sqrt", "square", "tan", "tanh",
    )
)  # fmt: skip
_MOVED = frozenset(
    ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy", "pvary", "pcast", "stop_gradient", "name")
)
ALL_REDUCED = ("psum", "pmax", "pmin")
_REDUCED = frozenset(("reduce_sum", "reduce_max", "reduce_min"))
_FLOATS = frozenset(map(jnp.dtype, (jnp.float32, jnp.float64, jnp.bfloat16)))
_FEWEST = 4096
"""What has fewer elements is not worth a call of the library."""
_SMALLEST_PRODUCT = 8


def library_of(equation: Any) -> str:
    """Whether the library of kernels that XLA calls on CPUs knows an equation.

    It computes products and reductions, with arithmetic of floats around them that nobody else reads; comparisons,
    choices, integers and slices it does not know.

    Returns:
      `reduction`, `product`, or `joins` for arithmetic, `adds` for sums; `scatters` for what adds to or replaces a
      part of an array, `placed` for what puts arrays side by side, `turns` for transpositions, `sorts`,
      `last` for an all-to-all that cuts the last dimension; else nothing.
    """
    name = equation.primitive.name
    if name == "all_to_all":
        return "last" if equation.params["split_axis"] == len(equation.invars[0].aval.shape) - 1 else ""
    if name == "concatenate" or (name == "pad" and _is_larger(equation)):
        return "placed"
    if name == "transpose" and is_turned(equation.params["permutation"], equation.outvars[0].aval.shape):
        return "turns"
    if name == "sort":
        return "sorts"
    if name in ("scatter-add", "scatter_add", "dynamic_update_slice"):
        return "scatters"
    known = [atom.aval for atom in (*equation.invars, *equation.outvars)]
    if any(not hasattr(aval, "dtype") or aval.dtype not in _FLOATS for aval in known):
        return ""
    if name == "dot_general":
        return "product" if _is_plain(equation) else ""
    if max((math.prod(aval.shape) for aval in known), default=0) < _FEWEST:
        return ""
    if name in _REDUCED:
        # It sums bfloat16 in no precision that XLA takes.
        return "reduction" if name != "reduce_sum" or known[0].dtype != jnp.bfloat16 else ""
    if name in _SUMS:
        return "adds"
    return "joins" if name in _BINARY or name in _UNARY or name in _MOVED else ""


def parts_of(equation: Any) -> int:
    """Into how many pieces an all-to-all cuts what a device has; 0 for all else, and where the shapes do not say."""
    if equation.primitive.name != "all_to_all":
        return 0
    axis = equation.params["split_axis"]
    given, made = (atom.aval.shape for atom in (equation.invars[0], equation.outvars[0]))
    return given[axis] // max(made[axis], 1) if len(given) == len(made) else 0


def group_of(equation: Any) -> tuple[str, ...]:
    """What collectives have in common that can be sent as one: kind, mesh axes, and of what is reduced the type."""
    name, params = equation.primitive.name, equation.params
    if name.startswith("all_gather"):
        return "gather", str(params["axis_name"])
    if name == "reduce_scatter":
        return name, str(params["axis_name"]), str(equation.invars[0].aval.dtype)
    if name.startswith(ALL_REDUCED):
        return name, str(params["axes"]), str(equation.invars[0].aval.dtype)
    return ()


def cuts_inside(equation: Any) -> bool:
    """Whether an all-to-all sends along another dimension than the first, or a gather comes between others."""
    name, params = equation.primitive.name, equation.params
    if name == "all_to_all":
        return params["split_axis"] != 0
    if name.startswith("all_gather"):
        return math.prod(equation.invars[0].aval.shape[: params["all_gather_dimension"]]) > 1
    return False


def extents_of(equation: Any) -> tuple[int, ...]:
    """Of a product the sizes of its batch, its rows, its columns and of what it sums over; of all else nothing."""
    if equation.primitive.name != "dot_general":
        return ()
    (summed, _), (batched, _) = equation.params["dimension_numbers"]
    left, right = (atom.aval.shape for atom in equation.invars)
    batch, inner = (math.prod(left[axis] for axis in axes) for axes in (batched, summed))
    each = max(batch * inner, 1)
    return batch, math.prod(left) // each, math.prod(right) // each, inner


def reduces_rows(equation: Any) -> bool:
    """Whether an equation folds the last dimension, and no other."""
    axes = equation.params.get("axes") if equation.primitive.name.startswith("reduce_") else None
    return axes is not None and tuple(axes) == (len(equation.invars[0].aval.shape) - 1,)


def merged(equation: Any) -> tuple[int, ...]:
    """The places of operands of a product that are read through a reshape.

    Products of more than one contracted or free dimension on a side are made products of matrices.
    """
    if equation.primitive.name != "dot_general":
        return ()
    found: list[int] = []
    for place, (sums, rows) in enumerate(zip(*equation.params["dimension_numbers"], strict=True)):
        free = len(equation.invars[place].aval.shape) - len(sums) - len(rows)
        if len(sums) != 1 or free > 1 or tuple(rows) != tuple(range(len(rows))):
            found.append(place)
    return tuple(found)


def turned(equation: Any) -> tuple[int, ...]:
    """The places of operands of a product that are copied first: read through a reshape, and in another order."""
    found: list[int] = []
    for place in merged(equation):
        contracted, batched = equation.params["dimension_numbers"]
        sums, rows, shape = contracted[place], batched[place], equation.invars[place].aval.shape
        free = [axis for axis in range(len(shape)) if axis not in sums and axis not in rows]
        order = [*rows, *free, *sums] if place == 0 else [*rows, *sums, *free]
        order = [axis for axis in order if shape[axis] > 1]
        if order != sorted(order):
            found.append(place)
    return tuple(found)


def is_turned(permutation: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a transposition, which makes this shape, puts elements in another order in memory."""
    order = [axis for axis, size in zip(permutation, shape, strict=True) if size > 1]
    return order != sorted(order)


def _is_larger(equation: Any) -> bool:
    """Whether padding puts anything around its operand; gradients of padding cut off instead."""
    return any(max(sizes) > 0 for sizes in equation.params["padding_config"])


def _is_plain(equation: Any) -> bool:
    """Whether a product reads its left operand row by row, as the library does."""
    (left, _), (rows, columns) = equation.params["dimension_numbers"]
    shapes = [atom.aval.shape for atom in equation.invars]
    inner = math.prod(shapes[0][axis] for axis in left)
    batch = math.prod(shapes[0][axis] for axis in rows)
    sizes = [math.prod(shape) // max(inner * batch, 1) for shape in shapes]
    del columns
    if min(sizes) <= 1 or max(*sizes, inner) < _SMALLEST_PRODUCT:
        return False
    return turned(equation) != () or left[-1:] == (len(shapes[0]) - 1,)
