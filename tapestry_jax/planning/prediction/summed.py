"""Loops in time that end in one sum, such as a loss: their gradients are computed turn by turn, in the forward loop.

Such a loop runs its turns once, and nothing in it is brought together once more for a second pass of its own. Whether
it does so is up to its floats and derivatives as well (`lowering/time/summed.py`): where these tell nothing, it may.
"""

from __future__ import annotations

from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.captured import program_at
from combinators.operations.shaped import Shaped, Struct, block_structs, is_written
from tapestry_jax.planning.derivatives.linear import pulls_linearly
from tapestry_jax.planning.derivatives.range import keeps_range
from tapestry_jax.planning.folding.merges import merges
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Repeat, Run, Schedule

_PLAIN = "is plain"


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


def runs_once(step: Region, schedule: Schedule) -> bool | None:
    """Whether the gradients of a loop are computed in its forward turns; None where that is not known."""
    if not gives_a_sum(step, schedule):
        return False
    return True if _is_plain(step.body) else None


def _is_plain(body: Schedule) -> bool:
    """Whether nothing inside has a derivative that somebody wrote, nor floats of a range less than that of float32."""
    for step in body.steps:
        if isinstance(step, Region | Repeat) and not _is_plain(step.body):
            return False
        if isinstance(step, Run | Finish) and not _is_plain_operation(body, step):
            return False
    return True


def _is_plain_operation(body: Schedule, step: Run | Finish) -> bool:
    shaped = body.graph.shaped(step.node)
    if _PLAIN not in shaped.known:
        types = [body.graph.type_of(ref).struct for ref in body.graph.nodes[step.node].operands]
        shaped.known[_PLAIN] = _keeps_range(shaped, types) and not (
            is_written(shaped, types) and not _is_linear(shaped, types)
        )
    return shaped.known[_PLAIN]


def _keeps_range(shaped: Shaped, types: list[Struct]) -> bool:
    program = program_at(shaped.operation.kernel, block_structs(shaped.signature, types, shaped.sizes))
    return program is not None and keeps_range(program)


def _is_linear(shaped: Shaped, types: list[Struct]) -> bool:
    try:
        return pulls_linearly(shaped.operation.kernel, block_structs(shaped.signature, types, shaped.sizes))
    except Exception:  # noqa: BLE001 - its author's derivative fails, and says so where it is taken
        return False
