"""What XLA for GPUs makes of a program before it thinks of memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tapestry_jax.memory.compilers.added import added
from tapestry_jax.memory.compilers.arrived import arrived
from tapestry_jax.memory.compilers.combined import combined
from tapestry_jax.memory.compilers.kept import kept
from tapestry_jax.memory.compilers.scheduled import scheduled
from tapestry_jax.memory.compilers.split import split
from tapestry_jax.memory.program import COSTLY, FUSED, REDUCED, VIEW, Node, Program

_PRODUCT = "dot_general"
_SEVERAL = 3
"""Two read two arrays twice, where one is written, and read twice: as much. From three readers on it is less."""


def as_on_gpus(program: Program) -> Program:
    """The same program as XLA for GPUs runs it: lookups' gradients, products in parts, softmaxes; in loops too."""
    program = kept(_normalised(_turned(arrived(split(added(program))))), _SEVERAL)
    return scheduled(combined(program))


def _turned(program: Program) -> Program:
    """Transpositions are kernels, but for those that products take in; all-to-alls send along the first dimension."""
    readers: dict[int, list[Node]] = defaultdict(list)
    for node in program.nodes:
        for number in node.operands:
            readers[number].append(node)
    products = {result for node in program.nodes if node.name == _PRODUCT for result in node.results}
    values, nodes = list(program.values), list[Node]()
    for node in program.nodes:
        node = replace(node, bodies=tuple(map(_turned, node.bodies))) if node.bodies else node
        if node.library == "turns":
            taken = [reader.name == _PRODUCT for reader in readers[node.results[0]]]
            if products.isdisjoint(node.operands) and not (taken and all(taken)):
                node = replace(node, kind=FUSED)
        if node.name != "all_to_all":
            nodes.append(node)
            continue
        (sent,), (received,) = node.operands, node.results
        if node.cuts:
            values.append(values[sent])
            nodes.append(Node(FUSED, (sent,), (sent := len(values) - 1,), node.path, node.backward, library="turns"))
        values.append(values[received])
        nodes.append(replace(node, operands=(sent,), results=(len(values) - 1,)))
        nodes.append(Node(FUSED, (len(values) - 1,), (received,), node.path, node.backward, library="turns"))
    return replace(program, values=tuple(values), nodes=tuple(nodes))


def _normalised(program: Program) -> Program:
    """A softmax or norm, two reductions of the same rows one after the other, is one kernel; it writes elsewhere."""
    rows: dict[int, frozenset[int]] = {}
    once: dict[int, frozenset[int]] = {}
    twice: dict[int, frozenset[int]] = {}

    def of(found: dict[int, frozenset[int]], node: Node) -> frozenset[int]:
        return frozenset[int]().union(*(found.get(number, ()) for number in node.operands))

    nodes: list[Node] = []
    for node in program.nodes:
        node = replace(node, bodies=tuple(map(_normalised, node.bodies))) if node.bodies else node
        if node.kind in (VIEW, FUSED, COSTLY, REDUCED):
            read = frozenset[int]().union(*(rows.get(number, {number}) for number in node.operands))
            folded, again = of(once, node), of(twice, node)
            if node.kind == REDUCED:
                again |= read & folded if node.rows else frozenset()
                read, folded = frozenset(node.results), folded | (read if node.rows else frozenset())
            elif not read.isdisjoint(again):
                node = replace(node, library="apart")
            for result in node.results:
                rows[result], once[result], twice[result] = read, folded, again
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))
