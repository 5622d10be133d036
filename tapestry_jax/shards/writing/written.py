"""A schedule written out as a sharded graph: what every step reads and makes, as boxes of tensors."""

from __future__ import annotations

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Input
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule
from tapestry_jax.shards.parts import Program, Shared
from tapestry_jax.shards.writing.folds import write_finish
from tapestry_jax.shards.writing.matched import origins
from tapestry_jax.shards.writing.moves import write_convert
from tapestry_jax.shards.writing.operations import write_run
from tapestry_jax.shards.writing.regions import write_region
from tapestry_jax.shards.writing.repeats import write_repeat
from tapestry_jax.shards.writing.scope import Scope
from tapestry_jax.shards.writing.tables import Common, Tables


def written(program: Graph, schedule: Schedule) -> tuple[Shared, Program]:
    """Write a schedule out as blocks.

    Args:
      program: as it was traced.
      schedule: of the program, which may have been rewritten.

    Raises:
      PlanError: for what no sharded graph says yet.
    """
    common = Common.of(schedule.mesh)
    scope = Scope(common, Tables.of(program), origins(program, schedule.graph), schedule)
    inputs = [index for index, node in enumerate(program.nodes) if isinstance(node, Input)]
    for index, slot in zip(inputs, schedule.inputs, strict=True):
        scope.take(index, slot)
    write_steps(scope)
    return common.shared, scope.tables.program(scope.outputs())


def write_steps(scope: Scope) -> None:
    """Write all steps of a schedule, and of the loops in it."""
    for step in scope.schedule.steps:
        match step:
            case Convert():
                write_convert(scope, step)
            case Run():
                write_run(scope, step)
            case Finish():
                write_finish(scope, step)
            case Region():
                write_region(scope, step, write_steps)
            case Repeat():
                write_repeat(scope, step, write_steps)
