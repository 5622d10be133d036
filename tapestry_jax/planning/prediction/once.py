"""Loops in time that end in one sum, such as a loss: their gradients are computed turn by turn, in the forward loop.

Such a loop runs its turns once, and nothing in it is brought together once more for a second pass of its own. Whether
it does so is up to its floats and derivatives as well (`lowering/time/summed.py`): where these tell nothing, it may.
"""

from __future__ import annotations

from combinators.declared.range import keeps_range
from combinators.kernels.captured import program_at
from combinators.operations.shaped import Shaped, Struct, block_structs, is_written
from tapestry_jax.planning.derivatives.linear import pulls_linearly
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Repeat, Run, Schedule
from tapestry_jax.planning.scheduling.summed import gives_a_sum

_PLAIN = "is plain"


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
