"""What the counts of a step depend on."""

from __future__ import annotations

from typing import Any

from combinators.operations.dense import blocked
from tapestry_jax.planning.folding.merges import local_sizes
from tapestry_jax.planning.pricing.marginal import Part
from tapestry_jax.planning.scheduling.schedule import Run, Schedule

Key = tuple[Any, Any, Part, tuple[tuple[str, int], ...]]


def counts_key(schedule: Schedule, step: Run, platform: str) -> Key:
    """What the counts of a step depend on."""
    shaped = schedule.graph.shaped(step.node)
    known = "counts", step.cuts, platform
    if known not in shaped.known:
        shaped.known[known] = _counts_key(schedule, step, platform)
    return shaped.known[known]


def _counts_key(schedule: Schedule, step: Run, platform: str) -> Key:
    shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
    node = schedule.graph.nodes[step.node]
    operands = tuple(schedule.graph.type_of(ref).struct for ref in node.operands)
    folded = any(dim in cuts for dim in shaped.signature.fold_dims)
    # What presents nothing gives its states.
    presents = shaped.operation.present is not None or shaped.operation.dense or shaped.operation.kind != "reduce"
    gives = "state" if folded and presents else "result"
    sizes = tuple(sorted(local_sizes(shaped, cuts).items()))
    # What is cut matters to kernels that need a dimension whole: all others share their counts.
    cut = blocked(shaped.operation, frozenset(cuts)) if shaped.operation.dense else frozenset[str]()
    return shaped.operation, operands, Part(gives, cut, platform), sizes
