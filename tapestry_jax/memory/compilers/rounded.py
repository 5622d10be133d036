"""What stands in memory in bfloat16 on a TPU, although the program says float32.

Products of float32 read their operands in bfloat16 there, unless a precision asks for more. Where nothing but such
products reads a value, it is rounded when it is made, and not when it is read: what loops keep of it for the
backward pass takes half the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from tapestry_jax.memory.program import HELD, LOOP, VIEW, Node, Program, Value

_WIDE, _NARROW = "float32[", "bfloat16["


def rounded(program: Program) -> Program:
    """The same program, with what only products read as it lies in memory."""
    return _rounded(program, ())[0]


def _rounded(program: Program, narrow: Collection[int]) -> tuple[Program, set[int]]:
    """The program, and the places of its inputs that are read as they are.

    Args:
      program: or the turn of a loop.
      narrow: places of outputs that only products read.
    """
    exact = {out for place, out in enumerate(program.outputs) if out is not None and place not in narrow}
    read = {out for out in program.outputs if out is not None}
    nodes: list[Node] = []
    for node in reversed(program.nodes):
        found, by = _of_node(node, exact)
        nodes.append(found)
        exact.update(by)
        read.update(node.operands)
    made = {number for node in program.nodes for number in node.results}
    halved = (read & made) - exact
    values = tuple(_halved(value) if number in halved else value for number, value in enumerate(program.values))
    entering = {place for place, number in enumerate(program.inputs) if number in exact}
    return replace(program, values=values, nodes=tuple(reversed(nodes))), entering


def _of_node(node: Node, exact: set[int]) -> tuple[Node, Iterable[int]]:
    """An operation, and those of its operands that it reads as they are."""
    if node.rounds:
        return node, ()
    if node.kind in (VIEW, HELD):
        return node, () if exact.isdisjoint(node.results) else node.operands
    if node.kind == LOOP:
        narrow = {place for place, result in enumerate(node.results) if result not in exact and place >= node.carries}
        turn, entering = _rounded(node.bodies[0], narrow)
        carried = range(node.held, node.held + node.carries)
        places = entering.union(carried)
        return replace(node, bodies=(turn,)), [node.operands[place] for place in places if place < len(node.operands)]
    return node, node.operands


def _halved(value: Value) -> Value:
    if not value.text.startswith(_WIDE):
        return value
    return Value(value.bytes // 2, _NARROW + value.text.removeprefix(_WIDE))
