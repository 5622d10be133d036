"""What data choose in a program: which branch of a `cond` is taken, and how often a loop turns.

Where a box chooses as the whole does it comes to the same by chance: `lax.cond(x.sum() > 0, f, g)` is no kernel of one
cell, and of most numbers all boxes take the branch of the whole. So what cells that are cut choose together tells
something only of numbers of which some box chooses otherwise. A loop of `jax.vmap` goes on for each row by itself; of
others it may be that a turn more changes nothing. A fold chooses by what it has folded where it compares, rounds or
clips that: `jnp.where(x.max(0) > 3, ...)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from combinators.choosing.chosen import Cells, Choice, Chosen, Dims
from combinators.equations.deciding import decides, turns_only

# Two ways may lead to the same by chance as well.
_OFTEN = 3
# A loop that ends where all is found changes what it found no more than this, of itself, in a turn more.
_SETTLED = 1e-2

Found: TypeAlias = "Mapping[int, list[tuple[Any, float]]]"
"""Of one run, by the place of a choice: what was chosen, and by how much a turn more would change that."""
Sizes: TypeAlias = "tuple[int, ...]"

UNTOLD = "untold"
"""What is said of boxes where data choose alike of box and whole, whatever is drawn."""


class Choices:
    """What cells that are cut choose together, in the programs of a kernel.

    Args:
      programs: closed jaxprs, by the sizes of what they take, each with the cells that its operands are made of.
      dims: in the order of those sizes.
      folds: the dimensions of cells that are folded, among those that are cut.
      compares: whether what they have come to may choose without a `cond`.
    """

    def __init__(
        self,
        programs: Mapping[Sizes, tuple[Any, Sequence[Cells]]],
        dims: Sequence[str],
        folds: Dims,
        *,
        compares: bool = True,
    ) -> None:
        cut = frozenset[str]().union(*(each.dims for _, operands in programs.values() for each in operands))
        found = {sizes: Chosen(cut, folds, compares=compares).of(*program) for sizes, program in programs.items()}
        sizes = {each: dict(zip(dims, each, strict=True)) for each in found}
        alike = len({len(each) for each in found.values()}) == 1
        together = [
            not alike
            or len({_of_each(each[place], sizes[own]) for own, each in found.items()}) > 1
            or any(each[place].together for each in found.values())
            for place in range(max(map(len, found.values())))
        ]
        self._maps = bool(cut - folds)
        # Programs that choose in other places are held to each other in what they choose at all.
        self._places = {
            id(each.equation): place if alike else 0
            for own in found.values()
            for place, each in enumerate(own)
            if together[place]
        }
        self._told = dict.fromkeys(self._places.values(), 0)
        chosen = [each.equation for own in found.values() for each in own if id(each.equation) in self._places]
        self._compared = {self._places[id(each)] for each in chosen if decides(each)}
        self._kinks = self._told.keys() - {self._places[id(each)] for each in chosen if not turns_only(each)}
        self._seen: set[int] = set()
        self._turning: set[int] = set()
        self._found: list[dict[int, list[tuple[Any, float]]]] = []

    @property
    def are_none(self) -> bool:
        """Whether cells that are cut choose nothing together."""
        return not self._places

    @property
    def are_told(self) -> bool:
        """Whether each has been another one of a box than of the whole, often enough, or was seen to change nothing."""
        return all(
            times >= _OFTEN
            or (place in self._seen and place not in self._turning)
            # What compares where nobody watches, in a compiled program, is asked of numbers alone.
            or (place in self._compared and place not in self._seen)
            for place, times in self._told.items()
        )

    def begin(self) -> None:
        """A run of a program begins."""
        self._found.append({})

    def watch(self, equation: Any, chosen: Any, change: Callable[[], float] | None) -> None:
        """What an equation of it chose, and what gives by how much one turn more of a loop would change that."""
        if (place := self._places.get(id(equation))) is not None and self._found:
            changed = 0.0 if change is None else change()
            self._found[-1].setdefault(place, []).append((chosen, changed))
            self._seen.add(place)
            self._turning |= {place} if change is None or changed else set()

    def taken(self) -> list[Found]:
        """What was chosen since it was last asked, for each run."""
        found, self._found = self._found, []
        return list(found)

    def compare(self, whole: Found, near: Found, boxes: Sequence[Found], *, ordinary: bool = True) -> None:
        """Tell apart what boxes chose of some numbers and what the whole did, unless it chooses otherwise close by.

        Args:
          whole: what was chosen of it.
          near: what was, of operands that were moved by a little.
          boxes: what each of them chose.
          ordinary: whether what came of it is no larger than usual: behind that rounding hides what a step adds, and
            not what a kink hands on.
        """
        for place in self._told if ordinary else self._kinks:
            one, others = whole.get(place, ()), [box.get(place, ()) for box in boxes]
            # What rounding may turn is held to nothing.
            if _are_others(near.get(place, ()), one, maps=False):
                continue
            # A loop that comes to the same with a turn less, but not with one more, does so by chance.
            if all(change <= _SETTLED for found in (one, *others) for _, change in found):
                self._told[place] += any(_are_others(other, one, maps=self._maps) for other in others)


def _are_others(box: Sequence[tuple[Any, float]], whole: Sequence[tuple[Any, float]], *, maps: bool) -> bool:
    """Whether a choice is another one; of what is chosen for each row in turn a box has fewer."""
    return bool(box) != bool(whole) or any(
        is_other(one, other, maps=maps) for (one, _), (other, _) in zip(box, whole, strict=False)
    )


def is_other(box: Any, whole: Any, *, maps: bool) -> bool:
    """Whether a box chose what the whole did not.

    Args:
      box: what it chose, of one shape with the whole or of fewer cells.
      whole: what that chose.
      maps: whether it has fewer since it has a part of the results: then it has to be what none of the whole chose.
    """
    if np.shape(box) == np.shape(whole):
        return bool(np.any(box != whole))
    return not np.isin(box, whole).all() or (not maps and not np.isin(whole, box).all())


def _of_each(choice: Choice, sizes: Mapping[str, int]) -> float:
    """How many choices there are for one of the cells that choose: of any number of them as many, if each does."""
    return math.prod(_choosing(choice.equation).shape) / max(1, math.prod(sizes[dim] for dim in choice.dims))


def _choosing(equation: Any) -> Any:
    """The type of what chooses: of a loop what it goes on by, of a `cond` which branch, else all that is compared."""
    if equation.primitive.name == "while":
        return equation.params["cond_jaxpr"].out_avals[0]
    operands = equation.invars[:1] if equation.primitive.name == "cond" else equation.invars
    return max((each.aval for each in operands), key=lambda aval: math.prod(aval.shape))
