"""By which arguments of a program gradients are taken: `True`, a position, or several."""

from __future__ import annotations

from typing import Any

from combinators.arguments import is_flag, is_whole
from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph

Positions = bool | int | tuple[int, ...]


def read_positions(grad: Any, graph: Graph) -> Positions:
    """What to take gradients by, in Python's numbers.

    Raises:
      PlanError: for a position where the program has no argument.
    """
    if is_flag(grad):
        return bool(grad)
    count = len(graph.in_tree.children())
    positions: Any = grad if isinstance(grad, tuple | list) else (grad,)
    wrong = [each for each in positions if not is_whole(each) or each not in range(count)]
    if wrong:
        raise PlanError(
            message(
                f"grad names the argument {wrong[0]!r}, which `{graph.name}` does not have",
                f"its arguments are 0 to {count - 1}" if count else "it takes no arguments",
                remedy="Give positions of arguments, or True for all of them.",
            )
        )
    return tuple(int(each) for each in positions) if isinstance(grad, tuple | list) else int(grad)
