"""Which program records: the one whose function runs right now, and the one that values belong to."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from combinators.errors import GraphError, message, spelt
from combinators.recording.value import Value

if TYPE_CHECKING:
    from combinators.recording.trace import Trace

# The program whose function runs, for what has no operand to tell it by; every function that records sets it.
_RECORDING: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("recording", default=None)


def current_trace() -> Trace | None:
    """The program whose function runs right now; None where none does."""
    return _RECORDING.get()


@contextlib.contextmanager
def recording(program: Trace) -> Generator[None]:
    """Inside, what has no operands belongs to this program."""
    token = _RECORDING.set(program)
    try:
        yield
    finally:
        _RECORDING.reset(token)


def trace_of(values: Sequence[Any], what: str) -> Trace:
    """The program that the values belong to.

    Raises:
      GraphError: when an operand is not a value of a program.
    """
    check_values(values, what)
    if not values and (running := current_trace()) is not None:
        return running
    if not values:
        raise GraphError(
            message(f"`{what}` has no operand to find its program by", remedy="Pass at least one value of the program.")
        )
    # In the body of a loop values of the program around it may stand first.
    return next((v.trace for v in values if all(v.trace.is_inside(w.trace) for w in values)), values[0].trace)


def check_values(values: Sequence[Any], what: str) -> None:
    """Refuse what is no value of a program.

    Raises:
      GraphError: naming the first such operand of `what`.
    """
    for number, value in enumerate(values):
        if not isinstance(value, Value):
            raise GraphError(
                message(
                    f"operand {number} of `{what}` is not a value of the program",
                    f"got {type(value).__name__}: {spelt(value)}",
                    remedy="Pass arrays as arguments of the program; numbers may stand in arithmetic.",
                )
            )
