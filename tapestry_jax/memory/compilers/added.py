"""What XLA scatters into zeros and then adds to something, it scatters into that, on every platform.

The gradient of a lookup is such a scatter, and what is looked up often has another gradient: logits that of their
log-sum-exp, an embedding that of the head that it is tied to.

Source: XLA, `xla/hlo/transforms/simplifiers/algebraic_simplifier.cc`, additions of scatters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tapestry_jax.memory.program import UPDATE, Node, Program


def added(program: Program) -> Program:
    """The same program, without those zeros; in loops and branches too."""
    makers = {result: node for node in program.nodes for result in node.results if node.library == "scatters"}
    readers = Counter(number for node in program.nodes for number in node.operands)
    readers.update(number for number in program.outputs if number is not None)
    dropped: set[int] = set()
    nodes: list[Node] = []
    for node in program.nodes:
        node = replace(node, bodies=tuple(map(added, node.bodies))) if node.bodies else node
        found = [number for number in node.operands if number in makers and readers[number] == 1]
        if node.library != "adds" or len(found) != 1 or len(node.operands) != 2:
            nodes.append(node)
            continue
        (other,) = [number for number in node.operands if number != found[0]]
        scatter = makers[found[0]]
        read = other, *scatter.operands[1:]
        nodes.append(replace(scatter, kind=UPDATE, operands=read, results=node.results, library=""))
        dropped.add(found[0])
    return replace(program, nodes=tuple(node for node in nodes if dropped.isdisjoint(node.results)))
