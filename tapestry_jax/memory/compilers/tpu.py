"""What XLA for TPUs makes of a program before it thinks of memory.

Products take in whatever is computed cell by cell from what they read, exponentials and the like too: where several
read it, each computes it for itself. So the weights of a softmax over a vocabulary stand in memory for no product.
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
