"""Which steps each position of a value has merged: the proof that equations are prefixes by an associative function.

Slices and their kin move positions along the scanned axis, a call of the function merges those of its two sides, and
where each position holds the steps from the first to its own, the values are the prefixes. That the function is
associative is what calling `lax.associative_scan` says, and nothing else does: so all merges have to be those of its
tree. A tree of other merges, which may be right for any function, is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_key
from combinators.kernels.jaxprs import is_literal, part_of
from tapestry_jax.lifting.trees.alike import are_alike, same_literal

LEAST = 4
"""Scans of fewer steps stay as they are written out."""

Merged = np.ndarray[Any, Any]
"""For each position the first and the last step that it has merged, `(size, 2)`; -1 for zeros that were put there."""

_MOVES = frozenset({"slice", "pad", "concatenate", "rev"})
_JOINS = frozenset({"add", "or", "add_any"})


@dataclass(frozen=True, eq=False)
class Steps:
    """What a scan merges.

    Attributes:
      leaves: variables.
      axes: the scanned axis of each.
      size: how many steps there are.
    """

    leaves: tuple[Any, ...]
    axes: tuple[int, ...]
    size: int


def begun(equations: Sequence[Any], at: int) -> Steps | None:
    """The steps of which equations take every other one, from the first on, and then those between."""
    leaves, axes = list[Any](), list[int]()
    while at < len(equations) and (axis := _halved(equations[at], 0)) is not None:
        leaves.append(equations[at].invars[0])
        axes.append(axis)
        at += 1
    others = equations[at : at + len(leaves)]
    fits = [_halved(e, 1) == axis and e.invars[0] is leaf for e, leaf, axis in zip(others, leaves, axes, strict=False)]
    sizes = {leaf.aval.shape[axis] for leaf, axis in zip(leaves, axes, strict=True)}
    is_plain = all(0 not in leaf.aval.shape and not is_key(leaf.aval.dtype) for leaf in leaves)
    if len(sizes) != 1 or not is_plain or min(sizes) < LEAST or len(set(leaves)) < len(leaves):
        return None
    return Steps(tuple(leaves), tuple(axes), sizes.pop()) if len(fits) == len(leaves) and all(fits) else None


def _halved(equation: Any, start: int) -> int | None:
    """The one axis of which an equation takes every other cell, from `start` on."""
    if equation.primitive.name != "slice" or is_literal(equation.invars[0]):
        return None
    axis, size = _axis(equation), equation.invars[0].aval.shape
    if axis is None:
        return None
    taken = _taken(equation, axis)
    return axis if (taken.start, taken.step) == (start, 2) and taken.stop >= size[axis] - 1 else None


def _taken(equation: Any, axis: int) -> slice:
    """What a slice takes of an axis."""
    params = equation.params
    step = params["strides"][axis] if params["strides"] is not None else 1
    return slice(int(params["start_indices"][axis]), int(params["limit_indices"][axis]), int(step))


def _axis(equation: Any) -> int | None:
    """The one axis along which an equation moves positions; None where there are several or none."""
    name, params = equation.primitive.name, equation.params
    if name == "concatenate":
        return int(params["dimension"])
    if name == "rev":
        return int(params["dimensions"][0]) if len(params["dimensions"]) == 1 else None
    shape = equation.invars[0].aval.shape
    if name == "pad":
        moved = [axis for axis, config in enumerate(params["padding_config"]) if tuple(map(int, config)) != (0, 0, 0)]
    else:
        whole = [slice(0, size, 1) for size in shape]
        moved = [axis for axis, all_of in enumerate(whole) if _taken(equation, axis) != all_of]
    return moved[0] if len(moved) == 1 else None


class _Leaf:
    """Which leaf of the steps some values are: told once one of them is read as such, or joined with one."""

    def __init__(self, number: int | None = None, axis: int | None = None) -> None:
        self.number, self.axis = number, axis


@dataclass(frozen=True, eq=False)
class _Value:
    """A value along the scanned axis, and what each position of it has merged."""

    leaf: _Leaf
    merged: Merged


class _NoScan(Exception):
    """An equation belongs to no scan."""


class Search:
    """Goes through equations as long as they move positions or call one function.

    Args:
      equations: of a jaxpr.
      at: the first one.
      steps: what they scan.
    """

    def __init__(self, equations: Sequence[Any], at: int, steps: Steps) -> None:
        self._equations, self._at, self._steps = equations, at, steps
        self._wanted: Merged = np.stack([np.zeros(steps.size, int), np.arange(steps.size)], axis=1)
        own: Merged = np.stack([np.arange(steps.size)] * 2, axis=1)
        self._values = {
            var: _Value(_Leaf(number, axis), own)
            for number, (var, axis) in enumerate(zip(steps.leaves, steps.axes, strict=True))
        }
        self._first: Sequence[Any] = ()
        self._roles: dict[Any, tuple[int, int]] = {}
        self._results: dict[tuple[int, int], _Leaf] = {}
        self.end = at

    def run(self) -> list[Any] | None:
        """For each leaf the variable of its prefixes; None where these equations are no scan."""
        found: dict[int, Any] = {}
        try:
            while self.end < len(self._equations) and len(found) < len(self._steps.leaves):
                equation = self._equations[self.end]
                value = self._moved(equation)
                if value is None:
                    self._call()
                    continue
                self._values[equation.outvars[0]] = value
                self.end += 1
                number = value.leaf.number
                if number is not None and np.array_equal(value.merged, self._wanted):
                    found[number] = equation.outvars[0]
        except _NoScan:
            return None
        return (
            [found[number] for number in range(len(self._steps.leaves))]
            if len(found) == len(self._steps.leaves)
            else None
        )

    def body(self, jaxpr: Any) -> Any:
        """The function of the leaves of both sides, as it was called first."""
        outputs = {leaf.number: self._first[at].outvars[position] for (at, position), leaf in self._results.items()}
        results = [outputs[number] for number in range(len(self._steps.leaves))]
        return part_of(jaxpr, self._first, list(self._roles), results)

    def _moved(self, equation: Any) -> _Value | None:
        """What an equation that only moves positions gives; None for any other."""
        name, atoms = equation.primitive.name, equation.invars
        known = [None if is_literal(atom) else self._values.get(atom) for atom in atoms]
        if name in _JOINS and len(known) == 2 and known[0] is not None and known[1] is not None:
            return self._joined(known[0], known[1])
        axis = _axis(equation) if name in _MOVES else None
        if axis is None or known[0] is None:
            return None
        self._along(known[0].leaf, axis)
        merged = known[0].merged
        if name == "slice":
            return _Value(known[0].leaf, merged[_taken(equation, axis)])
        if name == "rev":
            return _Value(known[0].leaf, merged[::-1])
        if name == "pad":
            low, high, between = map(int, equation.params["padding_config"][axis])
            if min(low, high) < 0 or not is_literal(atoms[1]) or np.asarray(atoms[1].val) != 0:
                raise _NoScan
            padded = np.full((low + len(merged) + max(len(merged) - 1, 0) * between + high, 2), -1)
            padded[low : len(padded) - high : between + 1] = merged
            return _Value(known[0].leaf, padded)
        parts = [value for value in known if value is not None]
        if len(parts) < len(known):
            raise _NoScan
        for part in parts[1:]:
            self._same(parts[0].leaf, part.leaf)
        return _Value(parts[0].leaf, np.concatenate([part.merged for part in parts]))

    def _joined(self, one: _Value, other: _Value) -> _Value | None:
        """The sum of two values of which one is zero wherever the other is not."""
        left, right = one.merged, other.merged
        if left.shape != right.shape or not len(left) or not ((left < 0) | (right < 0)).all():
            return None
        self._same(one.leaf, other.leaf)
        return _Value(one.leaf, np.maximum(left, right))

    def _call(self) -> None:
        """A call of the function, by equations as those of the first one, on steps that follow each other."""
        self._first = self._first or self._learnt()
        calls = self._equations[self.end : self.end + len(self._first)]
        known: dict[Any, Any] = {}
        for first, equation in zip(self._first, calls, strict=False):
            self._match(known, first, equation)
        if not calls or len(calls) < len(self._first):
            raise _NoScan
        merged = self._merged(known)
        sizes = (self._steps.size // 2, len(merged))
        alike = [are_alike(first, equation, sizes) for first, equation in zip(self._first, calls, strict=True)]
        # Of no steps JAX writes other equations, and whatever they compute has no cells.
        if len(merged) and not all(alike):
            raise _NoScan
        for at, equation in enumerate(calls):
            for position, var in enumerate(equation.outvars):
                self._values[var] = _Value(self._results.setdefault((at, position), _Leaf()), merged)
        self.end += len(calls)

    def _learnt(self) -> Sequence[Any]:
        """The first call: all up to the next equation that moves positions."""
        count, end = len(self._steps.leaves), self.end
        while end < len(self._equations):
            equation = self._equations[end]
            if equation.primitive.name in _MOVES and _axis(equation) in self._steps.axes:
                break
            end += 1
        sides = self._equations[self._at : self._at + 2 * count]
        self._roles = {equation.outvars[0]: divmod(number, count) for number, equation in enumerate(sides)}
        return self._equations[self.end : end]

    def _match(self, known: dict[Any, Any], first: Any, equation: Any) -> None:
        """Say which variables of a call are those of the first one."""
        if len(first.invars) != len(equation.invars) or len(first.outvars) != len(equation.outvars):
            raise _NoScan
        for one, other in zip(first.invars, equation.invars, strict=True):
            if is_literal(one) and not same_literal(one, other):
                raise _NoScan
            if is_literal(one):
                continue
            is_told = one in known or one in self._roles
            if is_literal(other) or not is_told or known.setdefault(one, other) is not other:
                raise _NoScan
        known.update(zip(first.outvars, equation.outvars, strict=True))

    def _merged(self, known: dict[Any, Any]) -> Merged:
        """What a call merges: all leaves of a side the same steps, those of the right side behind the left one's."""
        sides: tuple[list[Merged], list[Merged]] = ([], [])
        for one, (side, number) in self._roles.items():
            if one not in known:
                continue
            value = self._values.get(known[one])
            if value is None:
                raise _NoScan
            self._is(value.leaf, number)
            sides[side].append(value.merged)
        if not sides[0] or not sides[1]:
            raise _NoScan
        left, right = sides[0][0], sides[1][0]
        same = all(np.array_equal(merged, listed[0]) for listed in sides for merged in listed)
        if not same or left.shape != right.shape or (left < 0).any() or not np.array_equal(left[:, 1] + 1, right[:, 0]):
            raise _NoScan
        merged: Merged = np.stack([left[:, 0], right[:, 1]], axis=1)
        if not np.array_equal(right[:, 1] - right[:, 0] + 1, _behind(merged[:, 1] - merged[:, 0] + 1)):
            raise _NoScan
        return merged

    def _along(self, leaf: _Leaf, axis: int) -> None:
        """Say which axis of a leaf is scanned."""
        leaf.axis = axis if leaf.axis is None else leaf.axis
        if leaf.axis != axis:
            raise _NoScan

    def _is(self, leaf: _Leaf, number: int) -> None:
        """Say which leaf some values are."""
        if leaf.number is None:
            if any(other.number == number for other in self._results.values()):
                raise _NoScan
            leaf.number = number
        if leaf.number != number:
            raise _NoScan
        if leaf.axis is not None:
            self._along(leaf, self._steps.axes[number])

    def _same(self, one: _Leaf, other: _Leaf) -> None:
        """Say that two values are of one leaf."""
        number = one.number if one.number is not None else other.number
        if number is None:
            raise _NoScan
        self._is(one, number)
        self._is(other, number)


def _behind(lengths: Any) -> Any:
    """How many of so many steps `lax.associative_scan` merges last: a half of a power of two, else the least one in it.

    So what has merged some steps is one tree, whichever calls it came by.
    """
    power = lengths & -lengths
    return np.where(power == lengths, lengths // 2, power)
