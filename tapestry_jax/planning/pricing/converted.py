"""What TPUs convert before a loop: its products read float32 operands that no turn changes from a copy in bfloat16."""

from __future__ import annotations

from combinators.graphs.nodes import Input, unrenamed
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.prediction.flow import Flow
from tapestry_jax.planning.pricing.keys import counts_key
from tapestry_jax.planning.pricing.marginal import block_counts
from tapestry_jax.planning.scheduling.schedule import Run, Schedule

_CONVERTING = 3.3
"""Conversions stand alone, and take as long as memory moves their operand so often (docs/design/cost.md)."""


def is_converted(body: Schedule, flow: Flow, position: int, machine: Machine) -> bool:
    """Whether a slice of a stack that a loop reads in each turn is an operand of a product, and of float32.

    Args:
      body: of the loop.
      flow: through it.
      position: of the slice, among the inputs of the body.
      machine: whose compiler it is.
    """
    if machine.platform != "tpu" or body.slots[body.inputs[position]].type.dtype != "float32":
        return False
    return any(
        position in _inputs(body, step) and block_counts(*counts_key(body, step, machine.platform)).products
        for step in body.steps
        if isinstance(step, Run) and any(each in flow.live for each in step.results)
    )


def _inputs(body: Schedule, step: Run) -> set[int]:
    """The inputs of a body that a step reads, under whatever names."""
    read = (unrenamed(body.graph, ref).node for ref in body.graph.nodes[step.node].operands)
    # Inputs are the first nodes.
    return {number for number in read if isinstance(body.graph.nodes[number], Input)}


def converting_bytes(size: int) -> float:
    """Bytes that memory would move while so many are converted."""
    return _CONVERTING * size
