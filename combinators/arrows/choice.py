"""Choice between arrows: both cases are computed and one is selected, so no collective hides behind a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from combinators.arrows.combined import Combined, Steps, joined_name
from combinators.arrows.part import Part
from combinators.errors import CompositionError, message, spelt
from combinators.recording.arithmetic import elementwise


class Either(NamedTuple):
    """Two cases of which one counts; the payload of the other is dead and never looked at.

    Attributes:
      is_left: bool, shape of the cells that choose (often a scalar).
      left: the payload of the left case.
      right: the payload of the right case.
    """

    is_left: Any
    left: Any
    right: Any


class Choice(Combined):
    """`f | g`: f on the left case, g on the right one, and one result of their common type."""

    def __init__(self, first: Part, second: Part) -> None:
        self._first, self._second = first, second
        self.name = joined_name(first.name, " | ", second.name)

    @property
    def arity(self) -> int:
        """One `Either`."""
        return 1

    def parts(self) -> tuple[Part, ...]:
        """Both arrows."""
        return (self._first, self._second)

    def steps(self, *values: Any) -> Steps:
        """Both, of which one counts."""
        case = _either(self.name, values)
        left = yield self._first, (case.left,)
        right = yield self._second, (case.right,)
        if jax.tree.structure(left) != jax.tree.structure(right):
            raise CompositionError(
                message(
                    f"`{self.name}` cannot choose between results of different structures",
                    f"left  {jax.tree.structure(left)}",
                    f"right {jax.tree.structure(right)}",
                    remedy="Make both arrows return the same structure.",
                )
            )
        return jax.tree.map(lambda a, b: elementwise(jnp.where, case.is_left, a, b), left, right)


class Left(Combined):
    """`f.left()`: f on the left case."""

    def __init__(self, arrow: Part) -> None:
        self._arrow = arrow
        self.name = joined_name(arrow.name, ".", "left")

    @property
    def arity(self) -> int:
        """One `Either`."""
        return 1

    def parts(self) -> tuple[Part, ...]:
        """The arrow."""
        return (self._arrow,)

    def steps(self, *values: Any) -> Steps:
        """The left payload alone."""
        case = _either(self.name, values)
        return Either(case.is_left, (yield self._arrow, (case.left,)), case.right)


class Right(Combined):
    """`f.right()`: f on the right case."""

    def __init__(self, arrow: Part) -> None:
        self._arrow = arrow
        self.name = joined_name(arrow.name, ".", "right")

    @property
    def arity(self) -> int:
        """One `Either`."""
        return 1

    def parts(self) -> tuple[Part, ...]:
        """The arrow."""
        return (self._arrow,)

    def steps(self, *values: Any) -> Steps:
        """The right payload alone."""
        case = _either(self.name, values)
        return Either(case.is_left, case.left, (yield self._arrow, (case.right,)))


def _either(name: str, values: Sequence[Any]) -> Either:
    if len(values) == 1 and isinstance(values[0], Either):
        return _checked(name, values[0])
    if len(values) == 3:  # an arrow before gave the three parts as results
        return _checked(name, Either(*values))
    got = ", ".join(type(value).__name__ for value in values)
    raise CompositionError(
        message(f"`{name}` takes one tp.Either", f"got {got}", remedy="Pass tp.Either(is_left, left, right).")
    )


def _checked(name: str, case: Either) -> Either:
    """The same case, whose condition is one: a number would be taken for True wherever it is not 0."""
    condition = case.is_left
    if isinstance(condition, bool | np.bool_) or getattr(condition, "dtype", None) == np.bool_:
        return case
    raise CompositionError(
        message(
            f"`{name}` chooses by a condition that is not bool",
            f"got {type(condition).__name__}: {spelt(condition)}",
            remedy="Compare it: tp.Either(x > 0, left, right).",
        )
    )
