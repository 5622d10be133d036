"""What of a program is needed: compilers drop all else, in loops too, before they think of memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tapestry_jax.memory.program import BRANCH, COSTLY, LOOP, Node, Program


def needed(program: Program, outputs: Iterable[int] | None = None) -> Program:
    """The same program without operations that no output depends on.

    Args:
      program: any.
      outputs: the places of the outputs that somebody reads; by default all. The others become None.
    """
    kept = range(len(program.outputs)) if outputs is None else set(outputs)
    given = tuple(out if place in kept else None for place, out in enumerate(program.outputs))
    read = {out for out in given if out is not None}
    nodes: list[Node] = []
    for node in reversed(program.nodes):
        if read.isdisjoint(node.results):
            continue
        found = _needed_inside(node, read)
        read.update(found.operands)
        nodes.append(found)
    return replace(program, nodes=tuple(reversed(nodes)), outputs=given)


def _needed_inside(node: Node, read: set[int]) -> Node:
    if node.kind == LOOP:
        return _needed_loop(node, read)
    return _needed_branch(node, read) if node.kind == BRANCH else node


def _needed_branch(node: Node, read: set[int]) -> Node:
    """A choice that gives what is read; what is constant in every branch stands outside of it, and is no buffer."""
    varying = [_varying(body) for body in node.bodies]
    places = [
        place
        for place, result in enumerate(node.results)
        if result in read
        and any(body.outputs[place] in known for body, known in zip(node.bodies, varying, strict=True))
    ]
    bodies = (replace(body, outputs=tuple(body.outputs[place] for place in places)) for body in node.bodies)
    return replace(
        node, results=tuple(node.results[place] for place in places), bodies=tuple(needed(body) for body in bodies)
    )


def _varying(body: Program) -> set[int]:
    """The values that follow from inputs, or are no arithmetic of constants."""
    found = set(body.inputs)
    for node in body.nodes:
        if node.kind > COSTLY or not found.isdisjoint(node.operands):
            found.update(node.results)
    return found


def _needed_loop(node: Node, read: set[int]) -> Node:
    """A loop that hands on, and gives, only what is read."""
    body = node.bodies[0]
    outputs = {place for place, result in enumerate(node.results) if result in read}
    while True:
        turn = needed(body, outputs)
        used = {number for inner in turn.nodes for number in inner.operands} | {*turn.outputs}
        entering = {place for place, number in enumerate(body.inputs) if number in used}
        more = {place - node.held for place in entering if node.held <= place < node.held + node.carries} - outputs
        if not more:
            break
        outputs |= more
    carried = {place + node.held for place in outputs if place < node.carries}
    places = sorted(entering | carried)
    return replace(
        node,
        operands=tuple(node.operands[place] for place in places),
        results=tuple(node.results[place] for place in sorted(outputs)),
        bodies=(
            replace(
                turn,
                inputs=tuple(body.inputs[place] for place in places),
                outputs=tuple(turn.outputs[place] for place in sorted(outputs)),
            ),
        ),
        held=sum(place < node.held for place in places),
        carries=len(carried),
    )
