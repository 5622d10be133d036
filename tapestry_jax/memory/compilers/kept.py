"""What is written although it could be computed where it is read: each reader would read more than one array for it.

A sum of two arrays, such as a residual stream, is read as one array once it is written. What is computed from one
array, and from small ones beside it, is read as cheaply from that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from tapestry_jax.memory.program import COSTLY, FUSED, HELD, VIEW, Node, Program

_COMPUTED = frozenset((VIEW, HELD, FUSED))


def kept(program: Program, least: int, names: Collection[str] | None = None) -> Program:
    """The same program, where such values are costly; in loops and branches too.

    Args:
      program: any.
      least: so many operations read a value at least.
      names: of primitives; None for all that is fused.
    """
    readers = Counter(number for node in program.nodes for number in {*node.operands})
    # From which arrays a value is computed where it is read.
    behind = {number: frozenset((number,)) for number in program.inputs}
    nodes: list[Node] = []
    for node in program.nodes:
        node = replace(node, bodies=tuple(kept(body, least, names) for body in node.bodies)) if node.bodies else node
        read = frozenset[int]().union(*(behind.get(number, ()) for number in node.operands))
        if node.kind == FUSED and (names is None or node.name in names) and readers[node.results[0]] >= least:
            node = replace(node, kind=COSTLY if _are_as_large(program, node, read) else FUSED)
        for result in node.results:
            behind[result] = read if node.kind in _COMPUTED else frozenset((result,))
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _are_as_large(program: Program, node: Node, read: frozenset[int]) -> bool:
    """Whether an operation is computed from more than one array that is as large as what it makes."""
    cells = math.prod(program.values[node.results[0]].shape)
    return sum(math.prod(program.values[number].shape) >= cells for number in read) > 1
