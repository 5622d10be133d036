"""What goes into a turn of a loop, and has to come out of it; and how many turns there may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.errors import CompositionError, GraphError, message
from combinators.graphs.nodes import MOST_TURNS
from combinators.index_space.naming import unify
from combinators.operations.binding import Names
from combinators.recording.renaming import give_way
from combinators.recording.value import Value


def slice_of(value: Value, axis: int) -> tuple[Names, tuple[int, ...], Any]:
    """Names, shape and dtype of a slice along an axis."""
    axes = value.axes[:axis] + value.axes[axis + 1 :]
    return axes, value.shape[:axis] + value.shape[axis + 1 :], value.dtype


def agreed_carries(carries: Sequence[Value], outputs: Sequence[Value]) -> list[Value]:
    """What a turn gives, axes that nobody named called as in what went in, where they have to be."""
    pairs = zip(carries, outputs, strict=False)
    found = [give_way(after, before.axes) if before.ndim == after.ndim else after for before, after in pairs]
    return [*found, *outputs[len(found) :]]


def check_carries(name: str, carries: Sequence[Value], outputs: Sequence[Value]) -> None:
    """What a turn carries has to come out as it goes in.

    Raises:
      CompositionError: where it does not.
    """
    if len(outputs) != len(carries):
        raise CompositionError(
            message(
                f"`{name}` carries {len(carries)} values, its step returns {len(outputs)}",
                remedy="Return every carried value.",
            )
        )
    for number, (before, after) in enumerate(zip(carries, outputs, strict=True)):
        same = before.shape == after.shape and before.dtype == after.dtype
        if not same or not all(unify(a, b) for a, b in zip(before.axes, after.axes, strict=True)):
            raise CompositionError(
                message(
                    f"`{name}` cannot repeat its step: carry {number} comes out as another type",
                    f"goes in as   {before!r}",
                    f"comes out as {after!r}",
                    remedy="Make the step return what it takes: the same names, sizes and dtype.",
                )
            )


def check_turns(turns: int, where: str) -> None:
    """Refuse a loop that JAX could trace and not run.

    Raises:
      GraphError: for more than `MOST_TURNS` turns.
    """
    if turns > MOST_TURNS:
        remedy = "Give fewer, or nest two whose counts multiply to it: tp.iterate(tp.iterate(step, 2**16), n // 2**16)."
        raise GraphError(
            message(f"{where} repeats more often than JAX counts", f"got {turns}, at most 2**31 - 1", remedy=remedy)
        )
