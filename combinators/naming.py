"""Axis names as they are while a program is traced: known, or variables that unify."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class AxisVariable:
    """An axis without a name yet. It unifies with a name or with another variable; identity is what counts.

    Attributes:
      origin: where the axis first appeared, for messages.
      hint: the name that a program's signature suggests for it, used if nothing else names it.
    """

    origin: str
    hint: str | None = None
    _target: str | AxisVariable | None = field(default=None, repr=False)


AxisName = str | AxisVariable


def find(name: AxisName) -> AxisName:
    """Follow a variable to what it stands for now: a name, or the variable that represents its class."""
    while isinstance(name, AxisVariable) and name._target is not None:  # pyright: ignore[reportPrivateUsage]
        name = name._target  # pyright: ignore[reportPrivateUsage]
    return name


def unify(left: AxisName, right: AxisName) -> bool:
    """Make two axis names one. Returns False where they are two different names."""
    left, right = find(left), find(right)
    if left is right or left == right:
        return True
    if isinstance(right, AxisVariable):
        if isinstance(left, AxisVariable) and left.hint is None:
            left.hint = right.hint
        right._target = left  # pyright: ignore[reportPrivateUsage]
        return True
    if isinstance(left, AxisVariable):
        left._target = right  # pyright: ignore[reportPrivateUsage]
        return True
    return False


def suggest(name: AxisName, hint: str | None) -> None:
    """Suggest a name for an axis that has none yet; the first suggestion stays."""
    found = find(name)
    if isinstance(found, AxisVariable) and found.hint is None:
        found.hint = hint


def describe(name: AxisName) -> str:
    """The name, or where the unnamed axis came from."""
    name = find(name)
    return f"`{name}`" if isinstance(name, str) else f"an unnamed axis ({name.origin})"


class Resolver:
    """Gives every axis its final name: its own, its hint where that is free, or `_0`, `_1`, ... in order."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)
        self._given: dict[AxisVariable, str] = {}

    def __call__(self, name: AxisName) -> str:
        """Give the final name of an axis; the same one every time."""
        name = find(name)
        if isinstance(name, str):
            return name
        if name not in self._given:
            self._given[name] = self._choose(name)
            self._taken.add(self._given[name])
        return self._given[name]

    def _choose(self, variable: AxisVariable) -> str:
        if variable.hint is not None and variable.hint not in self._taken:
            return variable.hint
        number = 0
        while f"_{number}" in self._taken:
            number += 1
        return f"_{number}"
