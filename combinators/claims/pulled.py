"""Derivatives of kernels, asked of boxes: what boxes pull back has to come to what the whole does.

A derivative that somebody wrote may choose by how many cells its block has, and so may a kernel choose what has a
derivative (`lax.stop_gradient`). Neither changes a number that the kernel gives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.claims.cut import Boxed, Parts, slices
from combinators.claims.fewer import asked_at
from combinators.claims.running import Run, told
from combinators.claims.slopes import pullback
from combinators.declared.compared import differ
from combinators.declared.drawn import drawn, moved
from combinators.declared.runnable import equations_in
from combinators.kernels.jaxprs import as_function

_ROUNDS = 2
# What pulls back runs forward first, and holds both.
_SHARE = 1 / 4
# Of many cells some are equal by rounding, and what they share of a slope is up to the order in which they are taken.
_ENOUGH = 1 / 1024
# Boxes that are asked beside each other, of so many equations together: that may be compiled.
_MOST_BOXES, _MOST_EQUATIONS = 64, 256
# At a kink one draw may differ by chance.
_DIFFERING = 2


def pulls_otherwise(kernel: Boxed, box: Mapping[str, int]) -> bool:
    """Whether the boxes of a kernel are known to pull back something else than the kernel on all of its cells.

    Args:
      kernel: on all of its cells.
      box: the sizes of a part of its index space, no greater than the whole.
    """
    cut = [dim for dim, size in kernel.sizes.items() if box[dim] != size]
    if not cut or not all(0 < box[dim] <= size for dim, size in kernel.sizes.items()):
        return False
    # Each is compiled, so of those that tell no more than others the first is asked, and what is closest to its own.
    asked = list(asked_at(kernel, box, _SHARE, _ENOUGH))
    return any(_parts_pull_otherwise(kernel, parts) for parts in (*asked[:1], *asked[1:][-1:]))


def _parts_pull_otherwise(kernel: Boxed, parts: Parts) -> bool:
    # Sums of few bits are other numbers in each order.
    if len(parts.boxes) > 1 and parts.rounds:
        return False
    # The first box and the last alone, then the others beside each other: each question is a program of its own.
    ends, between = parts.corners[:2], parts.corners[2:]
    most = max(1, min(_MOST_BOXES, _MOST_EQUATIONS // equations_in(parts.programs[tuple(parts.box.values())])))
    asked = [*([corner] for corner in ends), between[:: -(-len(between) // most) or 1]]
    return any(_pull_otherwise(kernel, parts, corners) for corners in filter(None, asked))


def _pull_otherwise(kernel: Boxed, parts: Parts, corners: Sequence[Mapping[str, int]]) -> bool:
    """Whether boxes that begin at some corners pull back something else than what the whole has there does."""
    program = parts.programs[tuple(parts.sizes.values())]
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]

    def of_whole(*arrays: Any) -> list[Any]:
        leaves = _joined(parts, [parts.sizes], [arrays])
        return [
            leaf[slices(axes, corner, parts.box, parts.sizes, leaf)]
            for corner in corners
            for axes, leaf in zip(kernel.shown, leaves, strict=True)
        ]

    def of_boxes(*arrays: Any) -> list[Any]:
        found = (_joined(parts, parts.boxes, parts.blocks(kernel, arrays, corner)) for corner in corners)
        return list(itertools.chain.from_iterable(found))

    programs = [jax.make_jaxpr(each)(*structs) for each in (of_whole, of_boxes)]

    def asked(runs: Sequence[Run]) -> Iterator[bool]:
        whole, boxes, of_nothing = runs
        for arrays in drawn(kernel.signature, program, parts.sizes, _ROUNDS):
            if any(map(np.any, of_nothing(arrays))):
                return  # of cells outside of the corner, too, of which the boxes know nothing
            one, near = whole(arrays), whole(list(map(moved, arrays)))
            again = partial(_moved, boxes, arrays)
            yield differ(one, boxes(arrays), near, again, exact=False, allowed=parts.tolerances)

    return told([*map(pullback, programs), pullback(programs[0], 0)], asked, _DIFFERING)


def _moved(boxes: Run, arrays: Sequence[Any], way: int) -> list[Any]:
    return boxes([moved(array, way) for array in arrays])


def _joined(parts: Parts, sizes: Sequence[Mapping[str, int]], blocks: Sequence[Sequence[Any]]) -> list[Any]:
    """What is compared of parts of some sizes and their blocks."""
    states = [
        as_function(parts.programs[tuple(each.values())])(*block) for each, block in zip(sizes, blocks, strict=True)
    ]
    found = as_function(parts.joined[len(states)])(*itertools.chain(*states)) if parts.joined else states[0]
    # A program that gives plain numbers gives them as they are.
    return list(map(jnp.asarray, found))
