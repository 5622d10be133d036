"""What XLA for CPUs makes of a program before it thinks of memory."""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.lowering.on_device.recomputed import LATER
from tapestry_jax.memory.compilers.added import added
from tapestry_jax.memory.compilers.library import grouped
from tapestry_jax.memory.compilers.order import breadth_first
from tapestry_jax.memory.compilers.parts import parted
from tapestry_jax.memory.program import COSTLY, FUSED, HELD, LOOP, OPAQUE, REDUCED, VIEW, Node, Program

_COMPUTE = (FUSED, COSTLY, REDUCED)
_SPREAD = frozenset(("broadcast_in_dim", "iota"))
"""What is computed from less than it gives."""
_COPY = "copy"
"""The name of an operation that puts elements in another order."""


def as_on_cpus(program: Program) -> Program:
    """The same program as XLA for CPUs runs it: its copies, its kernels, its order; in loops and branches too."""
    nodes = (
        replace(node, bodies=tuple(map(as_on_cpus, node.bodies))) if node.bodies else node for node in program.nodes
    )
    program = parted(replace(program, nodes=tuple(nodes)))
    program = grouped(_with_places(_with_copies(added(program))))
    return breadth_first(_recomputed(replace(program, nodes=tuple(map(_alone, program.nodes)))))


def _alone(node: Node) -> Node:
    """An operation that joined no kernel of the library."""
    if node.library == "placed":
        # Where several read them, arrays side by side are not put there by each.
        return replace(node, kind=COSTLY)
    if node.kind != HELD:
        return node
    # XLA for CPUs takes barriers out before it fuses; what comes later is chosen there, cell by cell.
    return replace(node, kind=FUSED if node.name == LATER else VIEW)


def _recomputed(program: Program) -> Program:
    """What is cheap is written for whoever reads it from memory, and others compute it again.

    They do so if they read no more for it than its result has, one operand or small ones. So does a copy in another
    order, if nobody reads it from memory but through a reshape. All else is written once.
    """
    values, nodes = list(program.values), list[Node]()
    spread = set[int]()
    for node in program.nodes:
        # What is computed of such values alone, cell by cell, is one as well: a mask of masks.
        of_spread = node.kind == VIEW or (node.kind == FUSED and node.operands)
        if node.name in _SPREAD or (of_spread and spread.issuperset(node.operands)):
            spread.update(node.results)
    straight = {
        number
        for node in program.nodes
        for place, number in enumerate(node.operands)
        if (node.kind != VIEW and place not in node.merged) and node.name != _COPY
    }
    cheap = {
        node.results[0]: node
        for node in program.nodes
        if node.kind == FUSED and (straight.isdisjoint(node.results) or _reads_one(program, node, spread))
    }
    others = {number for node in program.nodes if node.kind in _COMPUTE for number in node.operands}
    written: dict[int, int] = {}
    for node in program.nodes:
        for number in node.operands if node.kind == OPAQUE else ():
            if number in cheap and number in others and number not in written:
                values.append(values[number])
                written[number] = len(values) - 1
                nodes.append(replace(cheap[number], results=(written[number],)))
        reads = node.kind == OPAQUE and not written.keys().isdisjoint(node.operands)
        nodes.append(replace(node, operands=tuple(written.get(n, n) for n in node.operands)) if reads else node)
    return replace(program, values=tuple(values), nodes=tuple(nodes))


def _reads_one(program: Program, node: Node, spread: set[int]) -> bool:
    """Whether an operation reads at most one operand of as many dimensions, or no more bytes than it makes."""
    read = [program.values[number] for number in {*node.operands}]
    made = program.values[node.results[0]]
    large = sum(program.values[number].rank >= made.rank for number in node.operands if number not in spread)
    return large <= 1 or sum(value.bytes for value in read) <= made.bytes


def _with_places(program: Program) -> Program:
    """Make what loops write their turns' results into: it waits for nothing, and so is there from the beginning."""
    values, nodes = list(program.values), list[Node]()
    for node in program.nodes:
        if node.kind != LOOP:
            nodes.append(node)
            continue
        filled = range(len(values), len(values) + len(node.results) - node.carries)
        values += [program.values[number] for number in node.results[node.carries :]]
        nodes += [Node(OPAQUE, (), (number,), node.path, node.backward) for number in filled]
        nodes.append(replace(node, operands=(*node.operands, *filled), places=len(filled)))
    return replace(program, values=tuple(values), nodes=tuple(nodes))


def _with_copies(program: Program) -> Program:
    """Put copies before products and loops for operands that they read in another order than that of memory."""
    values, nodes = list(program.values), list[Node]()
    turns = {node.results[0] for node in program.nodes if node.library == "turns"}
    made: dict[tuple[int, int], int] = {}

    def copied(number: int, kind: int, of: Node) -> int:
        """The number of a copy; who reads the same shares it."""
        if (number, kind) not in made:
            values.append(values[number])
            made[number, kind] = len(values) - 1
            nodes.append(Node(kind, (number,), (len(values) - 1,), of.path, of.backward, library="turns", name=_COPY))
        return made[number, kind]

    for node in program.nodes:
        operands = list(node.operands)
        for place, number in enumerate(operands):
            if place in node.turned:
                operands[place] = copied(number, FUSED, node)
            elif node.kind == LOOP and number in turns:
                # A loop reads in the order of its first dimension: what is computed in another one is copied then.
                operands[place] = copied(copied(number, FUSED, node), OPAQUE, node)
        nodes.append(replace(node, operands=tuple(operands)))
    return replace(program, values=tuple(values), nodes=tuple(nodes))
