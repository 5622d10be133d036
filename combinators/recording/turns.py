"""How often a loop may turn."""

from __future__ import annotations

from combinators.errors import GraphError, message
from combinators.graphs.nodes import MOST_TURNS


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
