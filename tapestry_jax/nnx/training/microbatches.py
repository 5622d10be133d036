"""Microbatches: the batch of a plan in chunks, whose gradients are added up before they are reduced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from combinators.arguments import read_count
from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.program import argument_types
from tapestry_jax.nnx.training.rows import Rows
from tapestry_jax.plan import Plan, asked_of, make_plan
from tapestry_jax.planning.entries.items import Chunks
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def with_microbatches(plan: Plan, count: Any) -> Plan:
    """The same plan with the batch in `count` chunks, one after the other: the same loss and the same gradients.

    The batch is the first dimension of most arrays behind the model. It is as if the plan were written with
    `{"batch": ("data", tp.chunks(size=n))}`.

    Raises:
      TrainingError: for no whole number, where the batch is in chunks already, or a device has fewer rows.
    """
    count = read_count(count, "microbatches= of a trainer", error=TrainingError)
    if count == 1:
        return plan
    found = Rows.of(argument_types(plan.graph)[1:])
    if found.name is None:
        raise TrainingError(
            message("microbatches= of a trainer: the loss takes no batch", remedy="Give it the arrays of a batch.")
        )
    batch, asked = found.name, asked_of(plan)
    there = dict(asked.entries).get(batch, ())
    if any(isinstance(item, Chunks) for item in there):
        raise TrainingError(
            message(
                f"microbatches= of a trainer: the plan takes `{batch}` in chunks already",
                f"got {', '.join(map(str, there))}",
                remedy="Say it once: leave microbatches= out.",
            )
        )
    axes = [axis for item in there for axis in ((item,) if isinstance(item, str) else getattr(item, "axes", ()))]
    rows = -(-found.size // MeshShape.of(plan.mesh).size(axes))
    if count > rows:
        details = f"a device has {rows} of the {found.size} rows of `{batch}`"
        remedy = f"Take at most microbatches={max(rows, 1)}."
        raise TrainingError(message(f"microbatches={count} of a trainer are more than rows", details, remedy=remedy))
    # Of a size, not so many: a smaller batch, the last one, has fewer.
    entries = {**dict(asked.entries), batch: (*there, Chunks(size=-(-rows // count)))}
    return make_plan(plan.graph, plan.mesh, replace(asked, entries=tuple(entries.items())))
