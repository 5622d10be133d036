"""What XLA for TPUs makes of a program before it thinks of memory.

What is computed cell by cell is computed anew by each operation that reads it, exponentials and the like too: nothing
is kept because it is dear and several read it. Products read their operands from memory, as elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.memory.compilers.added import added
from tapestry_jax.memory.compilers.rounded import rounded
from tapestry_jax.memory.program import COSTLY, FUSED, Program


def as_on_tpus(program: Program) -> Program:
    """The same program, as it is there."""
    return rounded(added(_computed_where_read(program)))


def _computed_where_read(program: Program) -> Program:
    nodes = [
        replace(
            node,
            kind=FUSED if node.kind == COSTLY else node.kind,
            bodies=tuple(map(_computed_where_read, node.bodies)),
        )
        for node in program.nodes
    ]
    return replace(program, nodes=tuple(nodes))
