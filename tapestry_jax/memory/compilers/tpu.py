"""What XLA for TPUs makes of a program before it thinks of memory.

What is computed cell by cell is computed anew by each operation that reads it, exponentials and the like too: nothing
is kept because it is dear and several read it. Products compute their operands on the way as well. Sums of two arrays
that several read are written, and what is looked up. One cell that is added in each row is chosen by its number, in no
array of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tapestry_jax.memory.compilers.added import added
from tapestry_jax.memory.compilers.kept import kept
from tapestry_jax.memory.compilers.rounded import rounded
from tapestry_jax.memory.program import COSTLY, FUSED, REDUCED, Node, Program

_SUMS = frozenset(("add", "add_any"))
_SEVERAL = 2
_WITH_A_RESULT = frozenset(("dot_general", "gather"))
"""What has a result of its own, and computes what it reads."""


def as_on_tpus(program: Program) -> Program:
    """The same program, as it is there."""
    return rounded(added(kept(_computed_where_read(program), _SEVERAL, _SUMS)))


def _computed_where_read(program: Program) -> Program:
    return replace(program, nodes=tuple(_as_there(program, node) for node in program.nodes))


def _as_there(program: Program, node: Node) -> Node:
    """An operation by itself, bodies of loops and branches included."""
    if node.bodies:
        return replace(node, bodies=tuple(map(_computed_where_read, node.bodies)))
    if node.name in _WITH_A_RESULT:
        return replace(node, kind=REDUCED)
    if node.library == "scatters" and _adds_one_in_a_row(program, node):
        return replace(node, kind=FUSED, library="")
    return replace(node, kind=FUSED) if node.kind == COSTLY else node


def _adds_one_in_a_row(program: Program, node: Node) -> bool:
    """Whether a scatter adds one cell to each row, as the gradient of what was looked up along a dimension does."""
    if not node.name.startswith("scatter") or len(node.operands) != 3:
        return False
    into, at, given = (program.values[number].shape for number in node.operands)
    if len(into) != len(given) or math.prod(at) < math.prod(given):
        return False
    return [one for size, one in zip(into, given, strict=True) if size != one] == [1]
