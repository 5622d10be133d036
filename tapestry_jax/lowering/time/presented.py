"""What is known of a loop's sums before it runs: what they count, and which multiple of the total stands behind it.

A mean divides by how many there are. Gradients that a loop makes on the way are taken with that factor at once, inside
of its products; scaled behind the loop they were read and written once more, all weights among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import is_literal
from combinators.operations.execute import present
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.derivatives.dependence import dependence
from tapestry_jax.planning.derivatives.gradients import traced_states
from tapestry_jax.planning.folding.merges import local_sizes
from tapestry_jax.planning.folding.traffic import uneven_folds
from tapestry_jax.planning.geometry.time_axis import turns_of
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Run, Schedule

_LEAST, _MOST = 2.0**-32, 2.0**32
"""Slopes that leave float32 most of its range; any other is applied behind the loop."""


@dataclass(frozen=True)
class Presented:
    """What is known of the results of a loop that ends in a sum.

    Attributes:
      counts: position of an integer among the results to what all turns of a device come to.
      slope: of what is made of the total; 1 where it depends on more than these counts.
    """

    counts: Mapping[int, int]
    slope: float


def presented(step: Region, schedule: Schedule) -> Presented:
    """What is known of the sums of a loop of a schedule; blocks that are padded count differently in every turn."""
    counts, slope, start = dict[int, int](), 1.0, 0
    for node, leaves in step.folds:
        shaped, run = schedule.graph.shaped(node), _run_of(step, node)
        if run is not None and not uneven_folds(shaped, dict(run.cuts), schedule.mesh):
            known = _counted(schedule, run, shaped)
            counts |= {start + leaf: count * turns_of(step.axis) for leaf, count in known.items()}
            finish = next((each for each in schedule.steps if isinstance(each, Finish) and each.node == node), None)
            if finish is not None and finish.scatter is None and len(known) == leaves - 1:
                blocks = _blocks(run, shaped, schedule)
                # Of the folds of a loop one has floats; the others count, such as right answers, and leave 1.
                slope *= _slope(shaped, {leaf: count * blocks for leaf, count in known.items()})
        start += leaves
    kinds = [step.body.slots[slot].type.dtype for slot in step.body.outputs]
    return Presented({place: count for place, count in counts.items() if _holds(kinds[place], count)}, slope)


def _run_of(step: Region, node: int) -> Run | None:
    """The step that folds the chunk of a turn; None where it stands in a loop inside."""
    return next((each for each in step.body.steps if isinstance(each, Run) and each.node == node), None)


def _blocks(run: Run, shaped: Shaped, schedule: Schedule) -> int:
    """How many blocks all devices fold in all turns."""
    cuts = dict(run.cuts)
    return schedule.mesh.size([axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes])


def _counted(schedule: Schedule, run: Run, shaped: Shaped) -> dict[int, int]:
    """The integers of a block's state that its sizes alone decide."""
    graph = schedule.graph
    operands = tuple(graph.type_of(ref).struct for ref in graph.nodes[run.node].operands)
    sizes = local_sizes(shaped, dict(run.cuts))
    results = traced_states(shaped.operation, operands, tuple(sorted(sizes.items()))).outvars
    return {leaf: int(atom.val) for leaf, atom in enumerate(results) if is_literal(atom) and _is_integer(atom.aval)}


def _slope(shaped: Shaped, counts: Mapping[int, int]) -> float:
    """The derivative of what is presented by the one leaf that is not counted, if that is one number."""
    (place,) = set(range(len(shaped.state))) - counts.keys()
    total = shaped.state[place]
    if len(shaped.results) != 1 or not is_inexact(total.dtype):
        return 1.0
    if not all(_holds(shaped.state[leaf].dtype, count) for leaf, count in counts.items()):
        return 1.0

    def made(leaf: Any) -> Any:
        numbers = {other: jnp.asarray(count, shaped.state[other].dtype) for other, count in counts.items()}
        return present(shaped, [numbers.get(other, leaf) for other in range(len(shaped.state))])[0]

    def slopes(leaves: Sequence[Any]) -> list[Any]:
        return [jax.jvp(made, (leaf,), (jnp.ones_like(leaf),))[1] for leaf in leaves]

    if not is_inexact(shaped.results[0].dtype) or any(map(any, dependence(slopes, [total]))):
        return 1.0
    with jax.ensure_compile_time_eval():
        slope = complex(slopes([jnp.ones(total.shape, total.dtype)])[0])
    return slope.real if not slope.imag and _LEAST <= abs(slope.real) <= _MOST else 1.0


def _is_integer(kind: Any) -> bool:
    return bool(jnp.issubdtype(kind.dtype, jnp.integer))


def _holds(dtype: Any, count: int) -> bool:
    """Whether an integer that wraps around would still say so many."""
    return count <= jnp.iinfo(dtype).max
