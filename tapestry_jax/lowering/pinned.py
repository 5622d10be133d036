"""A planned program with its inputs and outputs pinned to their layouts: what the predicted collectives speak of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tapestry_jax.lowering.boundary import sharding
from tapestry_jax.lowering.compiled import argument_structs, build, rules_told
from tapestry_jax.planning.derivatives.gradients import differentiated, is_inexact
from tapestry_jax.planning.scheduling.schedule import Schedule


def lower_pinned(
    schedule: Schedule, mesh: Any, grad: bool | int | Sequence[int] = False, run: Callable[..., Any] | None = None
) -> Any:
    """What `trace_pinned` gives, lowered for XLA: a `jax.stages.Lowered`."""
    return trace_pinned(schedule, mesh, grad, run).lower()


def trace_pinned(
    schedule: Schedule, mesh: Any, grad: bool | int | Sequence[int] = False, run: Callable[..., Any] | None = None
) -> Any:
    """Trace the program of a schedule, arrays in and out as they are stored, each where the plan wants it.

    Without pinned layouts XLA chooses those of the results, and adds or saves collectives that no plan asked for.

    Args:
      schedule: of a plan.
      mesh: with devices, where the program is to be lowered.
      grad: False for the program alone; otherwise the values together with the gradients by the arguments chosen, as in
        `Plan.collectives`.
      run: the program of the schedule as a jitted function, where there is one already: what JAX has traced of it is
        not traced again.

    Returns:
      A `jax.stages.Traced`. The program alone takes the flat list of arguments and returns the flat list of results.
      With `grad` it takes this list and the list of cotangents of the inexact results, and returns the results and the
      gradients by the chosen inexact leaves.
    """
    program = run or jax.jit(build(schedule, mesh))
    structs = jax.tree.leaves(argument_structs(schedule, mesh))
    given = [struct.sharding for struct in structs]
    slots = [schedule.slots[number] for number in schedule.outputs]
    made = [sharding(slot.layout, mesh) for slot in slots]

    def values(leaves: list[Any]) -> list[Any]:
        return jax.tree.leaves(program(*jax.tree.unflatten(schedule.graph.in_tree, leaves)))

    if grad is False:
        return jax.jit(values, in_shardings=(given,), out_shardings=made).trace(structs)
    wanted = differentiated(schedule.graph, grad)
    smooth = [number for number, slot in enumerate(slots) if is_inexact(slot.type.dtype)]
    shapes = [slot.layout.padded_shape(slot.type.shape, schedule.mesh) for slot in slots]
    directions = [
        jax.ShapeDtypeStruct(shapes[number], slots[number].type.dtype, sharding=made[number]) for number in smooth
    ]

    def values_and_gradients(leaves: list[Any], cotangents: list[Any]) -> tuple[list[Any], list[Any]]:
        def of_chosen(chosen: list[Any]) -> list[Any]:
            filled = list(leaves)
            for position, leaf in zip(wanted, chosen, strict=True):
                filled[position] = leaf
            return values(filled)

        results, pull = jax.vjp(of_chosen, [leaves[position] for position in wanted])
        full: list[Any] = [np.zeros(shape, jax.dtypes.float0) for shape in shapes]
        for number, cotangent in zip(smooth, cotangents, strict=True):
            full[number] = cotangent
        return results, pull(full)[0]

    both = jax.jit(
        values_and_gradients,
        in_shardings=(given, [made[number] for number in smooth]),
        out_shardings=(made, [given[position] for position in wanted]),
    )
    with rules_told():
        return both.trace(structs, directions)
