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
import numpy as np

from combinators.claims.cut import Boxed, Parts, joined_leaves, parts_of, slices
from combinators.claims.draws import selects, turns
from combinators.claims.fewer import asked_at
from combinators.claims.running import Run, told
from combinators.claims.slopes import pullback
from combinators.claims.turning import DIFFERING, turn_otherwise
from combinators.declared.compared import differ
from combinators.declared.drawn import drawn, moved
from combinators.declared.runnable import equations_in

Corner = Mapping[str, int]
"""Where a box begins along what is cut and mapped."""

# What selects pulls back the same of many numbers by chance; of more, where data decide what is done next.
_ROUNDS, _OFTEN, _OFTENER = 2, 8, 20
# What pulls back runs forward first, and holds both.
_SHARE = 1 / 4
# Of many cells some are equal by rounding, and what they share of a slope is up to the order in which they are taken.
_ENOUGH = 1 / 1024
# Boxes that are asked beside each other, of so many equations together: that may be compiled.
_MOST_BOXES, _MOST_EQUATIONS = 64, 256


def pulls_otherwise(kernel: Boxed, box: Mapping[str, int]) -> bool | str:
    """Whether the boxes of a kernel are known to pull back something else than the kernel on all of its cells.

    Args:
      kernel: on all of its cells.
      box: the sizes of a part of its index space, no greater than the whole.

    Returns:
      `UNTOLD` where they came to the same, and cells that are cut chose alike of all that was drawn.
    """
    cut = [dim for dim, size in kernel.sizes.items() if box[dim] != size]
    if not cut or not all(0 < box[dim] <= size for dim, size in kernel.sizes.items()):
        return False
    # Each is compiled, so of those that tell no more than others the first is asked, and what is closest to its own.
    asked = list(asked_at(kernel, box, _SHARE, _ENOUGH))
    found = [_parts_pull_otherwise(kernel, parts) for parts in (*asked[:1], *asked[1:][-1:])]
    return True in found or next(filter(None, found), False)


def _parts_pull_otherwise(kernel: Boxed, parts: Parts) -> bool | str:
    # Sums of few bits are other numbers in each order.
    if len(parts.boxes) > 1 and parts.rounds:
        return False
    ends = parts.corners[:2] if parts.mapped else []
    if any(_pull_otherwise(kernel, [(parts, corner)]) for corner in ends):
        return True
    # All boxes beside each other pull back all that the whole does, whatever a derivative makes of nothing.
    if not (every := _all_boxes(kernel, parts)):
        return False
    return _pull_otherwise(kernel, every, covers=True) or turn_otherwise(kernel, every)


def _all_boxes(kernel: Boxed, parts: Parts) -> list[tuple[Parts, Corner]]:
    """Boxes that hold every cell once, the last ones smaller where they are; of many cells as many as are asked."""
    most = max(1, min(_MOST_BOXES, _MOST_EQUATIONS // equations_in(parts.programs[tuple(parts.box.values())])))
    sizes = dict(parts.sizes)
    for dim in parts.mapped:
        if (count := -(-parts.sizes[dim] // parts.box[dim])) > most:
            count, sizes[dim] = most, most * parts.box[dim]
        most //= count
    cuts = [
        [(low, min(parts.box[dim], sizes[dim] - low)) for low in range(0, sizes[dim], parts.box[dim])]
        for dim in parts.mapped
    ]
    made: dict[tuple[int, ...], Parts | None] = {}
    found: list[tuple[Parts, Corner]] = []
    for place in itertools.product(*cuts):
        box = {**parts.box, **{dim: size for dim, (_, size) in zip(parts.mapped, place, strict=True)}}
        key = tuple(box.values())
        if key not in made:
            same = sizes == parts.sizes and box == parts.box
            made[key] = parts if same else parts_of(kernel, sizes, box, parts.share)
        if (part := made[key]) is None:
            return []
        found.append((part, {dim: low for dim, (low, _) in zip(parts.mapped, place, strict=True)}))
    return found


def _pull_otherwise(kernel: Boxed, boxes: Sequence[tuple[Parts, Corner]], *, covers: bool = False) -> bool:
    """Whether boxes pull back something else than what the whole has there does.

    Args:
      kernel: on all of its cells.
      boxes: of one whole, and where each begins.
      covers: whether each cell lies in one of them.
    """
    parts = boxes[0][0]
    program = parts.programs[tuple(parts.sizes.values())]
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]

    def of_whole(*arrays: Any) -> list[Any]:
        leaves = joined_leaves(parts, [parts.sizes], [arrays])
        return [
            leaf[slices(axes, corner, part.box, part.sizes, leaf)]
            for part, corner in boxes
            for axes, leaf in zip(kernel.shown, leaves, strict=True)
        ]

    def of_boxes(*arrays: Any) -> list[Any]:
        found = (joined_leaves(part, part.boxes, part.blocks(kernel, arrays, corner)) for part, corner in boxes)
        return list(itertools.chain.from_iterable(found))

    programs = [jax.make_jaxpr(each)(*structs) for each in (of_whole, of_boxes)]
    pulled = [pullback(each, turned=True) for each in programs]
    nothing = [] if covers else [pullback(programs[0], 0)]
    rounds = max((_how_often(each) for each in pulled if each is not None), default=0)

    def asked(runs: Sequence[Run]) -> Iterator[bool]:
        whole, cut, *of_nothing = runs
        for number, arrays in enumerate(drawn(kernel.signature, program, parts.sizes, rounds)):
            if any(np.any(each) for run in of_nothing for each in run(arrays)):
                return  # of cells outside of the corner, too, of which the boxes know nothing
            given = [*arrays, np.float32(number)]
            one, near = whole(given), whole([*map(moved, arrays), given[-1]])
            again = partial(_moved, cut, given)
            yield differ(one, cut(given), near, again, exact=False, allowed=parts.tolerances)

    return told([*pulled, *nothing], asked, DIFFERING)


def _how_often(program: Any) -> int:
    return _OFTENER if turns(program) else _OFTEN if selects(program) else _ROUNDS


def _moved(boxes: Run, arrays: Sequence[Any], way: int) -> list[Any]:
    return boxes([*(moved(array, way) for array in arrays[:-1]), arrays[-1]])
