"""What XLA for GPUs turns before it gathers it: along a dimension that is not the first elements would lie apart.

What is computed is written as the gather reads it. What arrives as it is, parameters, is copied by a kernel; of the
parameters of a loop's layers all are, before the loop.
"""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.memory.program import BRANCH, FUSED, HELD, LOOP, VIEW, Node, Program

_GATHER = "all_gather"


def arrived(program: Program) -> Program:
    """The same program, with those copies; in loops and branches too."""
    values, nodes = list(program.values), list[Node]()
    turned: dict[int, int] = {}

    def turn(number: int, node: Node) -> int:
        if number not in turned:
            values.append(values[number])
            turned[number] = len(values) - 1
            nodes.append(Node(FUSED, (number,), (turned[number],), node.path, node.backward, library="turns"))
        return turned[number]

    known = _inputs(program)
    for node in program.nodes:
        node = replace(node, bodies=tuple(map(arrived, node.bodies))) if node.kind == BRANCH else node
        places = _places(node)
        read = [turn(each, node) if at in places and each in known else each for at, each in enumerate(node.operands)]
        nodes.append(replace(node, operands=tuple(read)))
    return replace(program, values=tuple(values), nodes=tuple(nodes))


def _inputs(program: Program) -> dict[int, int]:
    """For the inputs of a program, and what is a view of one, that input."""
    found = {number: number for number in program.inputs}
    for node in program.nodes:
        if node.kind in (VIEW, HELD) and node.operands and node.operands[0] in found:
            found[node.results[0]] = found[node.operands[0]]
    return found


def _places(node: Node) -> set[int]:
    """The places of operands that are turned: of a loop those that it does not change."""
    if node.kind != LOOP:
        return {0} if _turns(node) else set()
    (body,) = node.bodies
    known = _inputs(body)
    gathered = {known[each.operands[0]] for each in body.nodes if _turns(each) and each.operands[0] in known}
    carried = range(node.held, node.held + node.carries)
    return {place for place, number in enumerate(body.inputs) if number in gathered and place not in carried}


def _turns(node: Node) -> bool:
    return node.cuts and node.name.startswith(_GATHER)
