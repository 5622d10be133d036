"""Loops in time that end in one sum, such as a loss."""

from __future__ import annotations

from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.folding.merges import merges
from tapestry_jax.planning.scheduling.schedule import Region, Schedule


def gives_a_sum(step: Region, schedule: Schedule) -> bool:
    """Whether all that a loop gives is scalars that are added up, one of them with a derivative.

    Where an operand is the same on devices whose sums differ, a turn would compute the gradient of all their sums by
    it, and not of this device's own: such a loop is differentiated as others are.
    """
    body = step.body
    if step.rotating or step.scans or len(body.outputs) != step.folded:
        return False
    kinds = [body.slots[slot].type for slot in body.outputs]
    if any(kind.shape for kind in kinds) or sum(is_inexact(kind.dtype) for kind in kinds) != 1:
        return False
    sums = frozenset[str]().union(*(body.slots[slot].varying for slot in body.outputs))
    operands = [body.slots[slot] for slot in body.inputs]
    if any(is_inexact(operand.type.dtype) and not sums <= operand.varying for operand in operands):
        return False
    operations = [schedule.graph.shaped(node) for node, _ in step.folds]
    return all(
        merge.kind == "sum" for shaped in operations if shaped.operation.monoid is not None for merge in merges(shaped)
    )
