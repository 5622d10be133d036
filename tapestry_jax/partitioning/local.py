"""The program of one device: of a plan, or of its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from combinators.kernels.jaxprs import is_literal
from tapestry_jax.lowering.boundary import spec
from tapestry_jax.lowering.compiled import on_device
from tapestry_jax.partitioning.tensors import Tensors
from tapestry_jax.planning.scheduling.schedule import Schedule

Local = Callable[..., list[Any]]
Lies = tuple[Sequence[PartitionSpec], Sequence[PartitionSpec]]
"""How operands and results lie."""


def lies(schedule: Schedule, tensors: Tensors) -> Lies:
    """How the operands and results of an operation lie by the plan of its program."""
    inputs, outputs = ([spec(schedule.slots[i].layout) for i in slots] for slots in (schedule.inputs, schedule.outputs))
    return tensors.specs(inputs, outputs)


def local_program(schedule: Schedule, mesh: Any, tensors: Tensors) -> Local:
    """The function of one device's blocks that XLA runs in the place of an operation.

    JAX traces it inside of a `shard_map`, where types say over which mesh axes a value differs: the gradient of what is
    alike on all devices is added up by that. XLA's partitioner has no such types; it is given the traced program.

    Args:
      schedule: of the plan.
      mesh: that it is for.
      tensors: operands and results of the program, or of its gradient.
    """
    given, made = lies(schedule, tensors)
    body = _differentiated(schedule, tensors)
    whole = jax.shard_map(jax.jit(body), mesh=mesh, in_specs=tuple(given), out_specs=list(made), check_vma=True)
    traced = jax.make_jaxpr(whole)(*(kind.struct for kind in tensors.operands))
    (mapped,) = traced.jaxpr.eqns
    return _called(mapped.params["jaxpr"], _places(traced, mapped))


def _differentiated(schedule: Schedule, tensors: Tensors) -> Local:
    """The program of a device; of a gradient: from operands and cotangents of results to cotangents of operands."""
    inner = tensors.of
    if inner is None:
        return on_device(schedule)
    body, count = _differentiated(schedule, inner), len(inner.operands)

    def pulled(*pieces: Any) -> list[Any]:
        operands, cotangents = list(pieces[:count]), pieces[count:]

        def of_smooth(*chosen: Any) -> list[Any]:
            filled = list(operands)
            for place, piece in zip(inner.smooth_operands, chosen, strict=True):
                filled[place] = piece
            results = body(*filled)
            # A value varies over the axes that cut it, and no others: cotangents come as results do.
            return [results[place] for place in inner.smooth_results]

        _, pull = jax.vjp(of_smooth, *(operands[place] for place in inner.smooth_operands))
        return list(pull(list(cotangents)))

    return pulled


def _places(traced: Any, mapped: Any) -> list[Any]:
    """For every operand of the mapped program its position among the operands, or an array that it holds."""
    known: dict[Any, Any] = {variable: at for at, variable in enumerate(traced.jaxpr.invars)}
    known |= dict(zip(traced.jaxpr.constvars, map(np.asarray, traced.consts), strict=True))
    return [np.asarray(atom.val) if is_literal(atom) else known[atom] for atom in mapped.invars]


def _called(program: Any, places: Sequence[Any]) -> Local:
    (call,) = program.eqns

    def run(*pieces: Any) -> list[Any]:
        found = [pieces[place] if isinstance(place, int) else place for place in places]
        known = dict(zip(program.invars, found, strict=True))
        operands = [atom.val if is_literal(atom) else known[atom] for atom in call.invars]
        # Bound as it was traced: traced again, it would lose its types.
        known |= dict(zip(call.outvars, call.primitive.bind(*operands, **call.params), strict=True))
        return [known[variable] for variable in program.outvars]

    return run
