"""All-to-alls as XLA for CPUs runs them: a part for every device is cut out, sent, and what comes is put together."""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.memory.program import FUSED, OPAQUE, Node, Program, Value

_MOST = 64
"""An all-to-all between more devices stays one operation: its parts are small then, and fill gaps."""


def parted(program: Program) -> Program:
    """The same program, each all-to-all in parts: buffers of their own before it and behind it.

    What comes is put together along the dimension that was cut. Along the last one that is an operation; along others
    it is computed where it is read.
    """
    values, nodes = list(program.values), list[Node]()

    def more(value: Value, count: int) -> tuple[int, ...]:
        values.extend([value] * count)
        return tuple(range(len(values) - count, len(values)))

    for node in program.nodes:
        if not 1 < node.parts <= _MOST:
            nodes.append(node)
            continue
        whole = values[node.operands[0]]
        part = Value(whole.bytes // node.parts, f"a part of {whole.text}")
        sent, received = more(part, node.parts), more(part, node.parts)
        nodes += [replace(node, kind=FUSED, results=(each,)) for each in sent]
        nodes.append(replace(node, operands=sent, results=received))
        if node.library == "last":
            together = more(whole, 1)
            nodes.append(replace(node, kind=OPAQUE, operands=received, results=together))
            received = together
        nodes.append(replace(node, kind=FUSED, operands=received, results=node.results))
    return replace(program, values=tuple(values), nodes=tuple(nodes))
