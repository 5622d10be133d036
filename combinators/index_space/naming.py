"""Axis names as they are while a program is traced: known, or variables that unify."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(eq=False)
class AxisVariable:
    """An axis without a name yet. It unifies with a name or with another variable; identity is what counts.

    Attributes:
      origin: where the axis first appeared, for messages.
      hint: the name that a signature suggests for it, used if nothing else names it.
      depth: how deep the signature stands that suggested it: the outermost is taken, of equals the first.
      is_shared: whether others of this hint may have the same name, such as the axes of equal layers.
      apart: what it may not be: other axes of a tensor, or of an operation, that has both. Names, and variables that
        stand for themselves; of two variables each has the other.
    """

    origin: str
    hint: str | None = None
    depth: int = 0
    is_shared: bool = False
    apart: set[AxisName] = field(default_factory=set["AxisName"], repr=False)
    _target: str | AxisVariable | None = field(default=None, repr=False)


AxisName = str | AxisVariable

LEAF = 1 << 30
"""The depth of a leaf's signature: any program's around it stands further out."""


def find(name: AxisName) -> AxisName:
    """Follow a variable to what it stands for now: a name, or the variable that represents its class."""
    followed: list[AxisVariable] = []
    while isinstance(name, AxisVariable) and name._target is not None:  # pyright: ignore[reportPrivateUsage]
        followed.append(name)
        name = name._target  # pyright: ignore[reportPrivateUsage]
    # Chains of variables get as long as the program: the next one to ask is answered at once.
    for variable in followed[:-1]:
        variable._target = name  # pyright: ignore[reportPrivateUsage]
    return name


def may_be_one(left: AxisName, right: AxisName) -> bool:
    """Whether two axis names are one, or can become one: they are not two different names, and not told apart."""
    left, right = find(left), find(right)
    if left == right:
        return True
    if isinstance(left, AxisVariable):
        return right not in left.apart
    return isinstance(right, AxisVariable) and left not in right.apart


def tell_apart(names: Iterable[AxisName]) -> None:
    """Keep axes from becoming one: a tensor, or an operation, has them all."""
    found = {find(name) for name in names}
    for name in found if len(found) > 1 else ():
        if isinstance(name, AxisVariable):
            name.apart |= found
            name.apart.discard(name)


def unify(left: AxisName, right: AxisName) -> bool:
    """Make two axis names one. Returns False where they may not be."""
    left, right = find(left), find(right)
    if left == right:
        return True
    if not may_be_one(left, right):
        return False
    if isinstance(right, AxisVariable):
        suggest(left, right.hint, right.depth, is_shared=right.is_shared)
        if isinstance(left, AxisVariable) and len(left.apart) < len(right.apart):
            # What fewer are told apart from changes its place, so that all of a program takes linear time.
            right.origin, right.hint, right.depth, right.is_shared = left.origin, left.hint, left.depth, left.is_shared
            left, right = right, left
        _replace(right, left)
    elif isinstance(left, AxisVariable):
        _replace(left, right)
    return True


def _replace(variable: AxisVariable, name: AxisName) -> None:
    """Let a variable be what a name, or another variable, stands for."""
    for other in variable.apart:
        if isinstance(other, AxisVariable):
            other.apart.discard(variable)
            other.apart.add(name)
    if isinstance(name, AxisVariable):
        name.apart |= variable.apart
    variable.apart, variable._target = set(), name  # pyright: ignore[reportPrivateUsage]


def suggest(name: AxisName, hint: str | None, depth: int = LEAF, *, is_shared: bool = False) -> None:
    """Suggest a name for an axis that has none yet; of two suggestions the outer one stays, of equals the first.

    Args:
      name: the axis.
      hint: the name; None suggests nothing, and neither do the leading axes of `...`.
      depth: how deep the signature stands that says so.
      is_shared: whether other axes of which this is suggested may have the same name.
    """
    found = find(name)
    if hint is None or hint.startswith(("...", "~")) or not isinstance(found, AxisVariable):
        return
    if found.hint is None or depth < found.depth:
        found.hint, found.depth, found.is_shared = hint, depth, is_shared


def describe(name: AxisName) -> str:
    """The name, or where the unnamed axis came from."""
    name = find(name)
    return f"`{name}`" if isinstance(name, str) else f"an unnamed axis ({name.origin})"


def is_coined(name: str | None) -> bool:
    """Whether a name is one of those that axes get which nobody named: `_0`, `_1`, ..."""
    return name is not None and name.startswith("_") and name[1:].isdigit()


class Resolver:
    """Gives every axis its final name: its own, what was suggested for it, or `_0`, `_1`, ... in order.

    A suggestion that is taken gets a number: two axes that were called `n` and have nothing to do with each other are
    `n` and `n_1`. Outer suggestions choose before inner ones. A suggestion that others may share is taken once for all
    of them that no tensor and no operation has side by side.

    Args:
      taken: names that are given.
      axes: all of them, in order.
      together: those of a tensor or of an operation, for all of these; empty where no suggestion is shared.
      coined: names that are given already, and were shared suggestions.

    Attributes:
      suggested: the names that come from suggestions.
    """

    def __init__(
        self,
        taken: set[str],
        axes: Iterable[AxisName] = (),
        together: Iterable[Iterable[AxisName]] = (),
        coined: Iterable[str] = (),
    ) -> None:
        self._taken = set(taken)
        self._sharing: dict[str, list[AxisName]] = {name: [name] for name in coined}
        self._beside: dict[AxisVariable, set[AxisName]] = {}
        for names in together:
            found = {find(name) for name in names}
            for name in found:
                if isinstance(name, AxisVariable) and name.is_shared:
                    self._beside.setdefault(name, set()).update(found)
        self._given: dict[AxisVariable, str] = {}
        # By what stands before the number: all below are taken.
        self._next: dict[str, int] = {}
        every = dict.fromkeys(find(axis) for axis in axes)
        hinted = [axis for axis in every if isinstance(axis, AxisVariable) and axis.hint is not None]
        self.suggested = frozenset(self(axis) for axis in sorted(hinted, key=lambda axis: axis.depth))

    def __call__(self, name: AxisName) -> str:
        """Give the final name of an axis; the same one every time."""
        name = find(name)
        if isinstance(name, str):
            return name
        if name not in self._given:
            self._given[name] = self._choose(name)
            self._taken.add(self._given[name])
            if name.is_shared:
                self._sharing.setdefault(self._given[name], []).append(name)
        return self._given[name]

    def _choose(self, variable: AxisVariable) -> str:
        hint = variable.hint
        if hint is not None and (hint not in self._taken or self._may_share(variable, hint)):
            return hint
        stem = "_" if hint is None else f"{hint}_"
        number = self._next.get(stem, 0 if hint is None else 1)
        while f"{stem}{number}" in self._taken:
            number += 1
        self._next[stem] = number + 1
        return f"{stem}{number}"

    def _may_share(self, variable: AxisVariable, name: str) -> bool:
        """Whether a name that is taken may be this axis' as well: all that have it share it, none stands beside it."""
        others = self._sharing.get(name, [])
        return variable.is_shared and bool(others) and self._beside.get(variable, set()).isdisjoint(others)
