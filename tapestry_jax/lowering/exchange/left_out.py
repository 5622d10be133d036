"""Kernels of folds whose slope is infinite at a box that the merge leaves out.

Of `sqrt(max(x))` in boxes the slope at a box of zeros is infinite, and where another box is larger nothing comes back
to it: an exact zero, times which an infinity is NaN. The whole has no such slope. So nothing comes back of exact zeros
(`combinators.equations.silent`), cell by cell as far as all blocks hold the same cells. Of sums all boxes get what the
whole gets, and they are left as they are; so are kernels whose roots, logarithms and quotients are of single cells,
which meet the same number in the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.silent import quiet
from combinators.kernels.captured import program_at
from combinators.kernels.jaxprs import WRAPPERS, is_literal, programs_inside
from combinators.operations.shaped import Shaped, block_structs

_STEEP = frozenset(("acos", "acosh", "asin", "atanh", "cbrt", "div", "erf_inv", "log", "log1p", "pow", "rsqrt", "sqrt"))
"""Primitives whose slope may be infinite, or whose result, at a finite number."""
_FOLDS = """
    cummax cummin cumprod cumsum dot_general conv_general_dilated reduce reduce_max reduce_min reduce_prod reduce_sum
    reduce_window reduce_window_max reduce_window_min reduce_window_sum scan sort top_k while
"""
_FOLDING = frozenset(_FOLDS.split())
_KNOWN = "its slope may be infinite behind what it folds"


def left_out(shaped: Shaped, operands: Sequence[Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, to whose blocks nothing comes back in cells to whose states nothing comes.

    Args:
      shaped: the operation, a fold.
      operands: its arrays, or their types.
      kernel: from blocks of a box to a state.
    """
    monoid = shaped.operation.monoid
    if monoid is None or monoid.native == "sum" or not _is_steep(shaped, operands):
        return kernel
    places, results = _common(shaped, operands)

    def run(*blocks: Any) -> Any:
        tree = jax.tree.structure(jax.eval_shape(kernel, *blocks))
        front = [_moved(block, place, to_front=True) for block, place in zip(blocks, places, strict=True)]

        def of_front(*given: Any) -> list[Any]:
            back = [_moved(block, place, to_front=False) for block, place in zip(given, places, strict=True)]
            leaves = jax.tree.leaves(kernel(*back))
            return [_moved(leaf, place, to_front=True) for leaf, place in zip(leaves, results, strict=True)]

        found = quiet(of_front, len(results[0]))(*front)
        leaves = [_moved(leaf, place, to_front=False) for leaf, place in zip(found, results, strict=True)]
        return jax.tree.unflatten(tree, leaves)

    return run


def _is_steep(shaped: Shaped, operands: Sequence[Any]) -> bool:
    if _KNOWN not in shaped.known:
        blocks = block_structs(shaped.signature, operands, shaped.sizes)
        program = program_at(shaped.operation.kernel, blocks)
        shaped.known[_KNOWN] = program is not None and _is_steep_behind(program.jaxpr, [False] * len(blocks))[0]
    return bool(shaped.known[_KNOWN])


def _is_steep_behind(jaxpr: Any, folded: Sequence[bool]) -> tuple[bool, list[bool]]:
    """Whether a slope may be infinite at what is folded, and which results are."""
    found = {variable for variable, each in zip(jaxpr.invars, folded, strict=True) if each}
    for equation in jaxpr.eqns:
        name, touched = equation.primitive.name, [not is_literal(atom) and atom in found for atom in equation.invars]
        inside = [getattr(inner, "jaxpr", inner) for inner in programs_inside(equation)]
        if name in WRAPPERS and len(inside) == 1:
            steep, results = _is_steep_behind(inside[0], touched)
        else:
            given = [[any(touched)] * len(inner.invars) for inner in inside]
            steep = any(_is_steep_behind(inner, each)[0] for inner, each in zip(inside, given, strict=True))
            steep = steep or (name in _STEEP and any(touched) and not _is_by_number(equation))
            results = [any(touched) or name in _FOLDING] * len(equation.outvars)
        if steep:
            return True, []
        found.update(out for out, each in zip(equation.outvars, results, strict=True) if each)
    return False, [not is_literal(atom) and atom in found for atom in jaxpr.outvars]


def _is_by_number(equation: Any) -> bool:
    """Whether it is a quotient by a number that stands in the program."""
    divisor = equation.invars[-1]
    return equation.primitive.name == "div" and is_literal(divisor) and bool(np.all(np.asarray(divisor.val) != 0))


def _common(shaped: Shaped, operands: Sequence[Any]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Of each block, and of each leaf of a state, where the dimensions are that all of them have."""
    types = block_structs(shaped.signature, operands, shaped.sizes)
    blocks = [
        [axis.name if axis.is_bare else None for axis in operand.axes] if operand.coordinate is None else []
        for operand in shaped.signature.operands
    ]
    moving = [jnp.issubdtype(each.dtype, jnp.inexact) for each in types]
    every = [axes for axes, each in zip(blocks, moving, strict=True) if each] + [list(axes) for axes in shaped.carrier]
    dims = [dim for dim in shaped.signature.map_dims if all(axes.count(dim) == 1 for axes in every)]
    # What has no derivative is left as it lies.
    places = [tuple(map(axes.index, dims)) if each else () for axes, each in zip(blocks, moving, strict=True)]
    return places, [tuple(map(axes.index, dims)) for axes in map(list, shaped.carrier)]


def _moved(array: Any, places: tuple[int, ...], *, to_front: bool) -> Any:
    front = tuple(range(len(places)))
    return jnp.moveaxis(array, places, front) if to_front else jnp.moveaxis(array, front, places)
