"""Derivatives that choose by data: a loop that goes on until all cotangents are small is none of each cell.

What cells that are cut choose together tells something only of numbers of which some box chooses otherwise, as in what
a kernel gives. So what boxes pull back is watched as well, of cotangents of any size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from combinators.choosing.choices import UNTOLD, Choices, Found
from combinators.choosing.chosen import Cells
from combinators.choosing.edges import edges
from combinators.claims.cut import Boxed, Parts, Sizes, cells, cells_along, joined_leaves, operand_axes, slices
from combinators.claims.draws import draws, grown
from combinators.claims.running import runner
from combinators.claims.slopes import cotangents_of, pulled_by, sloped
from combinators.declared.compared import are_ordinary, differ
from combinators.declared.drawn import drawn, moved, streaked
from combinators.declared.runnable import INTERPRETED, RaisesError, apart, ways
from combinators.equations.effort import Effort

# What all runs in NumPy may take, in small equations, and one draw of what is left.
_EFFORT, _SHARES = 1 << 18, 4
# At a kink one draw may differ by chance.
DIFFERING = 2
# Cotangents are of any size between these powers of ten.
_LEAST, _MOST = -2, 3
# So often cotangents grow.
_WAYS = 4

Numbers = Sequence[Any]
Drawn = tuple[list[Any], Callable[..., Any]]
"""Operands, then cotangents; and how they are moved to see what rounding does."""


def turn_otherwise(kernel: Boxed, boxes: Sequence[tuple[Parts, Mapping[str, int]]]) -> bool | str:
    """Whether what cells that are cut choose together makes boxes pull back something else than the whole.

    Args:
      kernel: on all of its cells.
      boxes: every box of one whole, and where it begins.

    Returns:
      `UNTOLD` where nothing that was drawn tells.
    """
    whole, parts = boxes[0][0], {tuple(part.box.values()): part for part, _ in boxes}
    found = {sizes: _pulled(part, part.boxes) for sizes, part in parts.items()}
    found[tuple(whole.sizes.values())] = _pulled(whole, [whole.sizes])
    programs = {sizes: each for sizes, each in found.items() if each is not None}
    if len(programs) < len(found):
        return False
    listed = {sizes: (pulled, _made_of(kernel, whole, program)) for sizes, (program, pulled) in programs.items()}
    # What is compared without a `cond` is followed (`declared.derivative`).
    choices = Choices(listed, list(whole.sizes), frozenset(), compares=False)
    if choices.are_none:
        return False
    if INTERPRETED not in ways([program for _, program in programs.values()]):
        return UNTOLD
    with apart(), np.errstate(all="ignore"):
        return _Asked(kernel, boxes, programs, choices).differ()


def _pulled(part: Parts, sizes: Sequence[Sizes]) -> tuple[Any, Any] | None:
    """What parts of some sizes come to together, from their blocks, and what that pulls back; None without slopes."""
    avals = [part.programs[tuple(each.values())].in_avals for each in sizes]
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for each in avals for aval in each]

    def leaves(*blocks: Any) -> list[Any]:
        left = iter(blocks)
        return joined_leaves(part, sizes, [list(itertools.islice(left, len(each))) for each in avals])

    program = jax.make_jaxpr(leaves)(*structs)
    pulled = pulled_by(program)
    return None if pulled is None else (program, pulled)


def _made_of(kernel: Boxed, whole: Parts, program: Any) -> list[Cells]:
    """Of which cells the blocks of a program are made, one part's after the other's, and its cotangents."""
    operands = kernel.signature.operands
    blocks = [cells(operand, whole.cut) for operand in operands] * (len(program.in_avals) // len(operands))
    return [*blocks, *(cells_along(kernel.shown[number], whole.cut) for number in cotangents_of(program))]


def _of_parts(found: Found, count: int) -> list[Found]:
    """What each of some parts chose that one program runs one after the other, if each chose as often."""
    if any(len(each) % count for each in found.values()):
        return [found]
    often = {place: len(each) // count for place, each in found.items()}
    return [{place: each[at * often[place] :][: often[place]] for place, each in found.items()} for at in range(count)]


class _Asked:
    """What is asked of boxes, and of the whole that they cover."""

    def __init__(
        self,
        kernel: Boxed,
        boxes: Sequence[tuple[Parts, Mapping[str, int]]],
        programs: Mapping[tuple[int, ...], tuple[Any, Any]],
        choices: Choices,
    ) -> None:
        self._kernel, self._boxes, self._choices = kernel, boxes, choices
        self._whole, self._effort = boxes[0][0], Effort(_EFFORT)
        self._program = programs[tuple(self._whole.sizes.values())][0]
        self._floats, self._results = sloped(self._program), cotangents_of(self._program)
        self._runs = {
            sizes: runner(pulled, INTERPRETED, self._effort, choices.watch) for sizes, (_, pulled) in programs.items()
        }

    def differ(self) -> bool | str:
        """Whether some draw tells that they differ, or that none could."""
        ran, differing = False, 0
        for arrays, move in itertools.chain(self._draws(), self._edges()):
            self._effort.begin(self._effort.left // _SHARES)
            try:
                near = [self._of_whole(given) for given in (arrays, list(map(move, arrays)))]
                chosen, close = self._choices.taken()
                found = self._of_boxes(arrays)
                taken = zip(self._boxes, self._choices.taken(), strict=True)
                boxes = [each for (part, _), one in taken for each in _of_parts(one, len(part.boxes))]

                def again(way: int, given: Numbers = arrays, move: Callable[..., Any] = move) -> list[Any]:
                    return self._of_boxes([move(each, way) for each in given])

                ran = True
                if differ(near[0], found, near[1], again, exact=False, allowed=self._whole.tolerances):
                    differing += 1
                    if differing == DIFFERING:
                        return True
                self._choices.taken()
                self._choices.compare(chosen, close, boxes, ordinary=are_ordinary(near[0]))
            except RaisesError:  # of these numbers nothing is known
                self._choices.taken()
        return False if ran and not differing and self._choices.are_told else UNTOLD

    def _draws(self) -> Iterator[Drawn]:
        rng = np.random.default_rng(0)
        for arrays, move in draws(self._kernel.signature, self._whole, self._effort):
            if move is moved:  # else there are ties, at which slopes may be any
                yield [*arrays, *self._cotangents(rng)], move

    def _edges(self) -> Iterator[Drawn]:
        rng, program = np.random.default_rng(1), self._whole.programs[tuple(self._whole.sizes.values())]
        for arrays in drawn(self._kernel.signature, program, self._whole.sizes, _WAYS):
            given = [*arrays, *self._cotangents(rng)]
            for steps, at in grown(given, range(len(arrays), len(given))):
                try:
                    for each in edges(steps, at, self._chosen):
                        yield each, moved
                except RaisesError:
                    self._choices.taken()

    def _chosen(self, arrays: Numbers) -> Any:
        self._effort.begin(self._effort.left // _SHARES)
        self._of_whole(arrays)
        return self._choices.taken()[-1]

    def _cotangents(self, rng: np.random.Generator) -> list[Any]:
        avals = [self._program.out_avals[number] for number in self._results]
        scale = 10.0 ** rng.uniform(_LEAST, _MOST)
        drawn = [(scale * rng.normal(size=aval.shape)).astype(aval.dtype) for aval in avals]
        return [streaked(each, rng) if rng.integers(2) else each for each in drawn]

    def _of_whole(self, arrays: Numbers) -> list[Any]:
        self._choices.begin()
        return self._runs[tuple(self._whole.sizes.values())](arrays)

    def _of_boxes(self, arrays: Numbers) -> list[Any]:
        """What all boxes pull back, each where its cells lie."""
        kernel, count = self._kernel, len(self._program.in_avals)
        total = [np.zeros_like(np.asarray(arrays[number])) for number in self._floats]
        for part, corner in self._boxes:
            own = [
                cotangent[slices(kernel.shown[number], corner, part.box, part.sizes, cotangent)]
                for number, cotangent in zip(self._results, arrays[count:], strict=True)
            ]
            blocks = part.blocks(kernel, arrays[:count], corner)
            self._choices.begin()
            slopes = iter(self._runs[tuple(part.box.values())]([*itertools.chain(*blocks), *own]))
            for place, box in zip(part.places, part.boxes, strict=True):
                for number, array in zip(self._floats, total, strict=True):
                    axes = operand_axes(kernel.signature.operands[number])
                    array[slices(axes, {**corner, **place}, box, part.sizes, array)] += next(slopes)
        return total
