"""What XLA for TPUs makes of a program before it thinks of memory.

What is computed cell by cell is computed anew by each operation that reads it, exponentials and the like too: nothing
is kept because it is dear and several read it. Products compute their operands on the way as well. What would read
more than it saves is kept: sums of two arrays of their own size that several read, and what is looked up. One cell
that is added in each row is chosen by its number, in no array of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from tapestry_jax.memory.compilers.added import added
from tapestry_jax.memory.compilers.rounded import rounded
from tapestry_jax.memory.program import COSTLY, FUSED, HELD, REDUCED, VIEW, Node, Program

_SUMS = frozenset(("add", "add_any"))
_WITH_A_RESULT = frozenset(("dot_general", "gather"))
"""What has a result of its own, and computes what it reads."""
_COMPUTED = frozenset((VIEW, HELD, FUSED))


def as_on_tpus(program: Program) -> Program:
    """The same program, as it is there."""
    return rounded(added(_computed_where_read(program)))


def _computed_where_read(program: Program) -> Program:
    readers = Counter(number for node in program.nodes for number in {*node.operands})
    # From which arrays a value is computed where it is read.
    behind = {number: frozenset((number,)) for number in program.inputs}
    nodes: list[Node] = []
    for node in program.nodes:
        node = _as_there(program, node)
        read = frozenset[int]().union(*(behind.get(number, ()) for number in node.operands))
        if node.name in _SUMS and readers[node.results[0]] > 1 and _are_as_large(program, node, read):
            node = replace(node, kind=COSTLY)
        for result in node.results:
            behind[result] = read if node.kind in _COMPUTED else frozenset((result,))
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _as_there(program: Program, node: Node) -> Node:
    """An operation by itself, bodies of loops and branches included."""
    if node.bodies:
        return replace(node, bodies=tuple(map(_computed_where_read, node.bodies)))
    if node.name in _WITH_A_RESULT:
        return replace(node, kind=REDUCED)
    if node.library == "scatters" and _adds_one_in_a_row(program, node):
        return replace(node, kind=FUSED, library="")
    return replace(node, kind=FUSED) if node.kind == COSTLY else node


def _are_as_large(program: Program, node: Node, read: frozenset[int]) -> bool:
    """Whether a sum is read off more than one array that is as large."""
    (made,) = node.results
    cells = math.prod(program.values[made].shape)
    return sum(math.prod(program.values[number].shape) >= cells for number in read) > 1


def _adds_one_in_a_row(program: Program, node: Node) -> bool:
    """Whether a scatter adds one cell to each row, as the gradient of what was looked up along a dimension does."""
    if not node.name.startswith("scatter") or len(node.operands) != 3:
        return False
    into, at, given = (program.values[number].shape for number in node.operands)
    if len(into) != len(given) or math.prod(at) < math.prod(given):
        return False
    return [one for size, one in zip(into, given, strict=True) if size != one] == [1]
