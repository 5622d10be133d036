"""Loops of the program: their bodies are programs of their own."""

from __future__ import annotations

from collections.abc import Callable

from combinators.graphs.nodes import Input, Loop, Ref
from tapestry_jax.planning.scheduling.schedule import Repeat
from tapestry_jax.shards import parts
from tapestry_jax.shards.parts import Coordinate, Program, Value
from tapestry_jax.shards.writing.matched import Origin
from tapestry_jax.shards.writing.moves import write_convert
from tapestry_jax.shards.writing.scope import Scope
from tapestry_jax.shards.writing.tables import Tables


def write_repeat(scope: Scope, step: Repeat, write: Callable[[Scope], None]) -> None:
    """A loop, its body written by `write`."""
    origin = scope.origins.nodes[step.node]
    assert origin.node is not None and origin.body is not None
    loop = scope.tables.graph.nodes[origin.node]
    assert isinstance(loop, Loop)
    coordinate = scope.common.coordinate(Coordinate(f"%{step.path}", step.length, "turns"))
    body = _body(scope, step, origin, loop, coordinate, write)
    operands: list[int] = []
    for number, (ref, slot) in enumerate(zip(loop.operands, step.operands, strict=True)):
        is_between = origin.first > 0 and number < loop.carries
        operands.append(scope.held[slot] if is_between else scope.as_value(scope.held[slot], ref, origin.substep))
    makes = tuple(scope.tables.refs[Ref(origin.node, number)] for number in range(len(loop.results)))
    scope.tables.steps.append(
        parts.Repeat(
            path=step.path,
            loop=origin.node,
            turn=coordinate,
            loops=scope.loops,
            body=body,
            first=origin.first,
            turns=step.length,
            depth=origin.body.depth,
            over=loop.over,
            carries=loop.carries,
            axes=loop.axes,
            operands=tuple(operands),
            makes=makes,
            results=_results(scope, step, origin, loop, makes),
            stage=None if step.stage is None else scope.range_of(step.stage, loop.length),
            until=step.until,
        )
    )


def _body(
    scope: Scope, step: Repeat, origin: Origin, loop: Loop, coordinate: str, write: Callable[[Scope], None]
) -> Program:
    assert origin.body is not None
    inner = Scope(
        scope.common,
        Tables.of(loop.body),
        origin.body,
        step.body,
        (*scope.loops, coordinate),
        loop.carries,
        called=scope.called,
    )
    inputs = [index for index, node in enumerate(loop.body.nodes) if isinstance(node, Input)]
    for index, slot in zip(inputs, step.body.inputs, strict=True):
        inner.take(index, slot)
    for early in step.prologue:
        write_convert(inner, early)
    write(inner)
    return inner.tables.program(inner.outputs())


def _results(scope: Scope, step: Repeat, origin: Origin, loop: Loop, makes: tuple[int, ...]) -> tuple[int, ...]:
    """Pieces of what the loop makes; of what it hands to its own rest where another loop goes on."""
    assert origin.body is not None
    stage = step.stage
    values = makes
    if stage is None and origin.first + step.length * origin.body.depth < loop.length:
        values = tuple(scope.tables.value(Value(kind, step.path, state=True)) for kind in loop.results)
    last: tuple[tuple[str, int], ...] = ()
    if stage is not None:
        last = tuple((axis, scope.common.mesh.size((axis,)) - 1) for axis in scope.real(stage.axes))
    results: list[int] = []
    for number, (value, slot) in enumerate(zip(values, step.results, strict=True)):
        pinned = last if number < loop.carries else ()
        results.append(scope.piece(value, slot, substep=origin.substep, only=pinned))
        scope.held[slot] = results[-1]
    return tuple(results)
