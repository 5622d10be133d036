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

from combinators.equations.silent import quiet
from combinators.equations.steep import is_steep_behind_folds
from combinators.kernels.captured import program_at
from combinators.operations.shaped import Shaped, block_structs

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
        shaped.known[_KNOWN] = program is not None and is_steep_behind_folds(program.jaxpr)
    return bool(shaped.known[_KNOWN])


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
