"""What data choose in a program: which branch of a `cond` is taken, and how often a loop turns.

Where a box chooses as the whole does it comes to the same by chance: `lax.cond(x.sum() > 0, f, g)` is no kernel of one
cell, and of most numbers all boxes take the branch of the whole. So what cells that are cut choose together tells
something only of numbers of which some box chooses otherwise. A loop of `jax.vmap` goes on for each row by itself; of
others it may be that a turn more changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from combinators.kernels.elementwise import CALLS
from combinators.kernels.jaxprs import is_literal, programs_inside, scan_parts

# Two ways may lead to the same by chance as well.
_OFTEN = 3
# A loop that ends where all is found changes what it found no more than this, of itself, in a turn more.
_SETTLED = 1e-2

Found: TypeAlias = "Mapping[int, list[tuple[int, float]]]"
"""Of one run, by the place of a choice: what was chosen, and by how much a turn more would change that."""
Dims: TypeAlias = "frozenset[str]"
"""The dimensions of cells that a value is made of, among those that are cut."""
Sizes: TypeAlias = "tuple[int, ...]"

_NONE: Dims = frozenset()


class Choices:
    """What cells that are cut choose together, in the programs of a kernel.

    Args:
      programs: closed jaxprs, by the sizes of what they take.
      dims: in the order of those sizes.
      operands: of each operand, of which cells it is made.
    """

    def __init__(self, programs: Mapping[Sizes, Any], dims: Sequence[str], operands: Sequence[Dims]) -> None:
        found = {sizes: _chosen(program, operands) for sizes, program in programs.items()}
        sizes = {each: dict(zip(dims, each, strict=True)) for each in found}
        alike = len({len(each) for each in found.values()}) == 1
        together = [
            not alike or len({_of_each(*each[place], sizes[own]) for own, each in found.items()}) > 1
            for place in range(max(map(len, found.values())))
        ]
        # Programs that choose in other places are held to each other in what they choose at all.
        self._places = {
            id(equation): place if alike else 0
            for each in found.values()
            for place, (equation, _) in enumerate(each)
            if together[place]
        }
        self._told = dict.fromkeys(self._places.values(), 0)
        self._seen: set[int] = set()
        self._turning: set[int] = set()
        self._found: list[dict[int, list[tuple[int, float]]]] = []

    @property
    def are_told(self) -> bool:
        """Whether each has been another one of a box than of the whole, often enough, or was seen to change nothing."""
        return all(
            times >= _OFTEN or (place in self._seen and place not in self._turning)
            for place, times in self._told.items()
        )

    def begin(self) -> None:
        """A run of a program begins."""
        self._found.append({})

    def watch(self, equation: Any, chosen: int, change: Callable[[], float] | None) -> None:
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

    def compare(self, whole: Found, boxes: Sequence[Found]) -> None:
        """Tell apart what boxes chose of some numbers and what the whole did."""
        for place in self._told:
            one, others = whole.get(place, ()), [box.get(place, ()) for box in boxes]
            # A loop that comes to the same with a turn less, but not with one more, does so by chance.
            if all(change <= _SETTLED for found in (one, *others) for _, change in found):
                self._told[place] += any(_are_others(other, one) for other in others)


def _are_others(box: Sequence[tuple[int, float]], whole: Sequence[tuple[int, float]]) -> bool:
    """Whether a choice is another one; of what is chosen for each row in turn a box has fewer."""
    return bool(box) != bool(whole) or any(one != other for (one, _), (other, _) in zip(box, whole, strict=False))


def _of_each(equation: Any, dims: Dims, sizes: Mapping[str, int]) -> float:
    """How many choices there are for one of the cells that choose: of any number of them as many, if each does."""
    choice = (
        equation.params["cond_jaxpr"].out_avals[0] if equation.primitive.name == "while" else equation.invars[0].aval
    )
    return math.prod(choice.shape) / max(1, math.prod(sizes[dim] for dim in dims))


Chosen: TypeAlias = "tuple[Any, Dims]"


def _chosen(program: Any, operands: Sequence[Dims]) -> list[Chosen]:
    """The equations of a closed jaxpr at which cells that are cut choose, each once, with these."""
    found: dict[int, Chosen] = {}
    _follow(program, operands, found)
    return list(found.values())


def _follow(program: Any, given: Sequence[Dims], found: dict[int, Chosen]) -> list[Dims]:
    jaxpr = getattr(program, "jaxpr", program)
    known = dict(zip(jaxpr.invars, given, strict=True))

    def made_of(atom: Any) -> Dims:
        return _NONE if is_literal(atom) else known.get(atom, _NONE)

    for equation in jaxpr.eqns:
        made = _step(equation, list(map(made_of, equation.invars)), found)
        known.update(zip(equation.outvars, made, strict=True))
    return list(map(made_of, jaxpr.outvars))


def _step(equation: Any, given: list[Dims], found: dict[int, Chosen]) -> list[Dims]:
    name, params, inner = equation.primitive.name, equation.params, list(programs_inside(equation))
    if name == "cond":
        branches = [_follow(branch, given[1:], found) for branch in params["branches"]]
        _note(equation, given[0], found)
        return [given[0].union(*each) for each in zip(*branches, strict=True)]
    if name == "while":
        asked, fixed = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        carry = _carried(params["body_jaxpr"], given[asked:fixed], given[fixed:], [], found)
        chooses = _follow(params["cond_jaxpr"], [*given[:asked], *carry], found)[0]
        _note(equation, chooses, found)
        return [chooses | each for each in carry]
    if name == "scan":
        fixed, carries = scan_parts(equation)
        last = fixed + carries
        carry = _carried(params["jaxpr"], given[:fixed], given[fixed:last], given[last:], found)
        return [*carry, *_follow(params["jaxpr"], [*given[:fixed], *carry, *given[last:]], found)[carries:]]
    if name in CALLS and inner and len(getattr(inner[0], "jaxpr", inner[0]).invars) == len(given):
        return _follow(inner[0], given, found)
    # What else holds programs, such as a kernel of Pallas, is run by itself, and cannot be watched.
    return [_NONE.union(*given)] * len(equation.outvars)


def _note(equation: Any, chooses: Dims, found: dict[int, Chosen]) -> None:
    if chooses:
        # A program that is called in two places is one and the same there.
        _, before = found.get(id(equation), (equation, _NONE))
        found[id(equation)] = equation, before | chooses


def _carried(
    body: Any, fixed: list[Dims], carry: list[Dims], slices: list[Dims], found: dict[int, Chosen]
) -> list[Dims]:
    """What a loop carries: what one turn makes of cells that are cut the next one takes."""
    after = _follow(body, [*fixed, *carry, *slices], found)[: len(carry)]
    grown = [one | other for one, other in zip(carry, after, strict=True)]
    return carry if grown == carry else _carried(body, fixed, grown, slices, found)
