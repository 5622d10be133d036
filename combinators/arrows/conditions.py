"""When a loop ends: conditions on its state, and what `tp.iterate` is told of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.monoids.elementwise import All
from combinators.operations.operation import Operation
from combinators.recording.arithmetic import elementwise
from combinators.recording.current import trace_of

DERIVATIVES = ("forwards", "unrolled", "implicit")


@dataclass(frozen=True)
class Unchanged:
    """A condition: every cell of the state is within `atol + rtol * |new|` of what it was before the turn.

    Attributes:
      atol: absolute.
      rtol: relative.
    """

    atol: float
    rtol: float

    def of(self, before: Any, after: Any) -> Any:
        """One flag of two states."""
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        near = IsNear(self.atol, self.rtol)
        return reduce(partial(elementwise, jnp.logical_and), [_all(elementwise(near, *pair)) for pair in pairs])


@dataclass(frozen=True)
class Zero:
    """A kernel without operands: one zero, or false.

    Attributes:
      dtype: its name.
    """

    dtype: str

    def __call__(self) -> Any:
        """Without axes."""
        return jnp.zeros((), self.dtype)


_LARGEST = 2**1000
"""Whole numbers beyond are no floats."""


def unchanged(*, atol: Any = 0.0, rtol: Any = 0.0) -> Unchanged:
    """The condition `until=` that a turn changes no cell by more than `atol + rtol * |new|`.

    Without tolerances it asks for equal cells, which is how assignments to clusters end. Cells of integers and flags
    have to be equal with them, too.

    Raises:
      GraphError: for a tolerance that is no number, or negative.
    """
    for name, given in (("atol", atol), ("rtol", rtol)):
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not given >= 0 or (isinstance(given, int) and given > _LARGEST):
            told = f"got {spelt(given)}"
            raise GraphError(
                message(f"{name}= of tp.unchanged is no tolerance", told, remedy="Give a number from 0 on.")
            )
    return Unchanged(float(atol), float(rtol))


@dataclass(frozen=True)
class IsNear:
    """Whether cells are as near as `Unchanged` says; those that are no floats have to be equal.

    Attributes:
      atol: absolute.
      rtol: relative.
    """

    atol: float
    rtol: float

    def __call__(self, before: Any, after: Any) -> Any:
        """Cell by cell."""
        if not jnp.issubdtype(jnp.result_type(after), jnp.inexact) or not (self.atol or self.rtol):
            return before == after
        # Infinities that stay have no difference. One that is new is no nearer than itself, whatever share of it is.
        is_close = jnp.abs(after - before) <= self.atol + self.rtol * jnp.abs(after)
        return (before == after) | (is_close & jnp.isfinite(after))


def read_until(
    until: Any, at_most: Any, derivative: Any, terms: Any, count: Callable[[Any, str], int]
) -> tuple[Any, int, int]:
    """Check what `tp.iterate` is given beside a condition; returns it, the most turns, and the terms.

    Raises:
      GraphError: for anything else.
    """
    convert = getattr(until, "__tapestry_arrow__", None)
    until = convert() if convert is not None else until
    if not callable(until) and not isinstance(until, Unchanged):
        raise GraphError(
            message(
                "until= of tp.iterate is no condition",
                f"got {type(until).__name__}: {spelt(until, 60)}",
                remedy="Pass a function of the state that gives one flag, or tp.unchanged(rtol=1e-6).",
            )
        )
    if not isinstance(derivative, str) or derivative not in DERIVATIVES:
        raise GraphError(
            message(
                "derivative= of tp.iterate is none",
                f"got {spelt(derivative)}",
                remedy=f"Give one of {', '.join(map(repr, DERIVATIVES))}.",
            )
        )
    if (terms is not None) != (derivative == "implicit"):
        raise GraphError(
            message(
                'tp.iterate takes terms= with derivative="implicit", and only then',
                f"got derivative={derivative!r}, terms={terms!r}",
                remedy="Say how many turns from the fixed point are differentiated: as many as it takes to converge.",
            )
        )
    if at_most is None:
        remedy = "Write at_most=: tp.iterate(step, until=condition, at_most=100)."
        raise GraphError(message("tp.iterate with until= takes the largest number of turns", "got none", remedy=remedy))
    return until, count(at_most, "at_most= of tp.iterate"), 0 if terms is None else count(terms, "terms= of tp.iterate")


def _all(flags: Any) -> Any:
    """Whether a flag holds in every cell."""
    if not flags.ndim:
        return flags
    axes = tuple(Axis("affine", (Term(f"d{at}"),)) for at in range(flags.ndim))
    operation = Operation(Signature((Operand(axes),), (Operand(()),)), jnp.all, monoid=All, name="all")
    return trace_of([flags], "all").apply(operation, [flags], suggests=False)
