"""Names for the dimensions that were found, and sizes that no operand tells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import final

from tapestry_jax.inference.findings import Dimension, Findings
from tapestry_jax.inference.probe import Place, say
from tapestry_jax.inference.relation import Relation

_LETTERS = "ijklmnopqrstuvwxyzabcdefgh"
_FOLD_LETTERS = "kpqrst"


@final
class Names:
    """The signature in words: letters in the order of the results, those that tensors bring where they agree.

    Args:
      findings: what was found.

    Attributes:
      sizes: of dimensions that no operand tells.
      of_scan: the scanned dimension.
      notes: what the sizes do not say.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings, self._probe = findings, findings.probe
        self.sizes, self.of_scan = dict[str, int](), ""
        self.notes: list[str] = []
        self._operands: dict[Place, str] = {}
        self._results: dict[Place, str] = {}
        self._windows: dict[Place, str] = {}
        self._relations = {place: r for dimension in findings.dimensions for place, r in dimension.readers.items()}
        folds = [name for name, _ in zip(_spelled(_FOLD_LETTERS, "f"), findings.folds, strict=False)]
        for name, group in zip(folds, findings.folds, strict=True):
            self._operands |= dict.fromkeys(group, name)
        self._letters = (name for name in _spelled(_LETTERS, "d") if name not in folds)
        self._name_results()
        self._name_windows()
        for place in findings.whole():
            self._whole(place)

    @property
    def signature(self) -> str:
        """The signature."""
        operands = [" ".join(self._operand(number)) or "()" for number in range(len(self._probe.types))]
        results = [" ".join(self._result(number)) for number in range(len(self._probe.shapes))]
        # One result without axes is left out; among others it is written, to be seen.
        return f"{', '.join(operands)} -> {', '.join(r or '()' for r in results) if len(results) > 1 else results[0]}"

    @cached_property
    def _tied(self) -> dict[Place, tuple[Place, ...]]:
        """For each axis those of other operands that the kernel wants of its size; whole ones have one name then."""
        tied: dict[Place, tuple[Place, ...]] = {}
        for place in self._findings.whole():
            if place in tied or self._probe.grown([place]) is not None:
                continue
            for group in self._findings.groups(place):
                if self._probe.grown(group) is not None:
                    tied |= dict.fromkeys(group, group)
                    break
        return tied

    @cached_property
    def _grown(self) -> dict[Place, list[tuple[int, ...]] | None]:
        """The shapes of the results where an axis of an operand, with those tied to it, has one cell more."""
        return {place: self._probe.grown(self._tied.get(place, [place])) for place in self._findings.places()}

    def _operand(self, number: int) -> Iterator[str]:
        whole = self._findings.whole()
        for axis in range(self._probe.types[number].ndim):
            place = (number, axis)
            if place in self._relations:
                yield self._relations[place].term(self._operands[place], self._windows.get(place, ""))
            else:
                yield f"[{self._operands[place]}]" if place in whole else self._operands[place]

    def _result(self, number: int) -> Iterator[str]:
        carried = {self._operands[place] for place in self._relations} | {self.of_scan}
        for axis in range(len(self._probe.shapes[number])):
            name = self._results[number, axis]
            yield name if name in carried else f"[{name}]"

    def _whole(self, place: Place) -> str:
        if place not in self._operands:
            self._operands |= dict.fromkeys(self._tied.get(place, (place,)), next(self._letters))
        return self._operands[place]

    def _name_results(self) -> None:
        ends = {end: dimension for dimension in self._findings.dimensions for end in dimension.ends}
        for number, shape in enumerate(self._probe.shapes):
            for at in ((number, axis) for axis in range(len(shape))):
                if at in ends:
                    self._name_dimension(ends[at])
                elif at == self._findings.over:  # a scan has one operand and one result, and keeps the places of axes
                    self._results[at] = self.of_scan = self._operands[at] = next(self._letters)
                else:
                    self._name_whole(at)

    def _name_dimension(self, dimension: Dimension) -> None:
        if min(dimension.ends) in self._results:
            return
        name = next(self._letters)
        self._results |= dict.fromkeys(dimension.ends, name)
        self._operands |= dict.fromkeys(dimension.readers, name)

    def _name_whole(self, at: Place) -> None:
        """A whole axis of a result has the name of a whole axis of an operand that gives it its size, or its own."""
        size = self._probe.shapes[at[0]][at[1]]
        taken = {name for (number, _), name in self._results.items() if number == at[0]}
        for place in self._findings.whole():
            is_free = self._operands.get(place) not in taken
            if is_free and self._findings.size(place) == size and self._gives(place, at, size + 1):
                self._results[at] = self._whole(place)
                return
        name = self._results[at] = next(self._letters)
        self.sizes[name] = size
        changing = [place for place, shapes in self._grown.items() if _sized(shapes, at) not in (None, size)]
        if changing:
            which = " and ".join(map(say, changing))
            self.notes.append(
                f"{say(at, 'result')} has a size that depends on {which}: {name}={size} is that of these operands only"
            )

    def _gives(self, place: Place, at: Place, wanted: int) -> bool:
        """Whether an axis of a result has the wanted size where one of an operand grows, alone or with its equals."""
        if _sized(self._grown[place], at) == wanted:
            return True
        size = self._findings.size(place)
        equals = [other for other in self._findings.whole() if self._findings.size(other) == size]
        if len(equals) < 2 or _sized(self._probe.grown(equals), at) != wanted:
            return False
        if self._grown[place] is not None:
            others = " and ".join(say(other) for other in equals if other != place)
            self.notes.append(f"{say(at, 'result')} has the size of {say(place)} only where {others} has it too")
        return True

    def _name_windows(self) -> None:
        """The members of a window have the name of a whole axis of another operand that gives their number."""
        whole, used = self._findings.whole(), set[Place]()
        for dimension in self._findings.dimensions:
            at = min(dimension.ends)
            for window, relation in dimension.readers.items():
                if relation.width < 2:
                    continue
                wanted = _reach(self._findings.size(window), relation)
                for place in whole:
                    is_free = place not in used and place[0] != window[0] and place not in self._operands
                    if is_free and self._findings.size(place) == relation.width and self._gives(place, at, wanted):
                        used.add(place)
                        self._windows[window] = self._whole(place)
                        break
                else:
                    self._windows[window] = next(self._letters)
                    self.sizes[self._windows[window]] = relation.width


def _sized(shapes: list[tuple[int, ...]] | None, at: Place) -> int | None:
    """The size of a result's axis; None where it has no such axis."""
    if shapes is None or at[0] >= len(shapes) or at[1] >= len(shapes[at[0]]):
        return None
    return shapes[at[0]][at[1]]


def _reach(cells: int, relation: Relation) -> int:
    """How many windows an axis holds where they have one member more."""
    return max(0, (cells - 1 - relation.dilation * relation.width) // relation.stride + 1)


def _spelled(letters: str, prefix: str) -> Iterator[str]:
    """Letters, and numbered names when they are used up."""
    yield from letters
    yield from (f"{prefix}{number}" for number in itertools.count())
