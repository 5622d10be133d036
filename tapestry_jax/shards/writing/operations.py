"""Operations as blocks: their index boxes, what they read and what they make."""

from __future__ import annotations

from dataclasses import replace

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Ref
from combinators.operations.execute import axis_modes
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.reads import fold_axes
from tapestry_jax.planning.scheduling.schedule import Run
from tapestry_jax.shards.parts import Block, Read
from tapestry_jax.shards.writing.folds import merged, present, state_pieces
from tapestry_jax.shards.writing.matched import Origin
from tapestry_jax.shards.writing.moves import gathered
from tapestry_jax.shards.writing.reading import read_boxes
from tapestry_jax.shards.writing.scope import Scope


def write_run(scope: Scope, step: Run) -> None:
    """The block of an operation; where it folds over cut dimensions, its state merged and presented as well."""
    origin = scope.origins.nodes[step.node]
    if origin.node is None:
        scope.held[step.results[0]] = scope.held[step.operands[0]]
        return
    node = scope.tables.graph.nodes[origin.node]
    assert isinstance(node, Apply)
    shaped, cuts = scope.schedule.graph.shaped(step.node), dict(step.cuts)
    reads = _reads(scope, step, node, origin, shaped, cuts)
    makes = tuple(scope.tables.refs[Ref(origin.node, number)] for number in range(len(node.results)))
    axes = scope.real(fold_axes(shaped, cuts))
    over = shaped.operation.over
    block = Block(
        path=step.path,
        operation=scope.common.operation(node.operation),
        runs=scope.common.operation(_scheduled(scope.schedule.graph, step.node)),
        names=node.names,
        box=scope.index_box(cuts, shaped.sizes),
        loops=scope.loops,
        reads=reads,
        makes=makes,
        results=(),
        chain=scope.real(cuts[over].axes) if over in cuts else (),
        substep=origin.substep,
    )
    if axes:
        state = state_pieces(scope, step, shaped, cuts, axes, origin.substep)
        scope.tables.steps.append(replace(block, results=state))
        if step.carried:
            scope.held.update(zip(step.results, state, strict=True))
        else:
            present(scope, step, makes, merged(scope, step, shaped, state, in_space(axes)), origin.substep)
        return
    made = step.results[: len(makes)]
    results = tuple(scope.piece(value, slot, substep=origin.substep) for value, slot in zip(makes, made, strict=True))
    scope.held.update(zip(made, results, strict=True))
    scope.totals.update(step.results[len(makes) :])
    scope.tables.steps.append(replace(block, results=results))


def _reads(
    scope: Scope, step: Run, node: Apply, origin: Origin, shaped: Shaped, cuts: dict[str, Cut]
) -> tuple[Read, ...]:
    dims = dict(scope.index_box(cuts, shaped.sizes))
    shapes = [scope.tables.graph.type_of(ref).shape for ref in node.operands]
    boxes = read_boxes(shaped.signature, axis_modes(shaped), shapes, shaped.sizes, dims)
    gathers, found = dict(step.gathers), list[Read]()
    for number, (ref, slot, box) in enumerate(zip(node.operands, step.operands, boxes, strict=False)):
        piece = scope.held[slot]
        if number in gathers:
            piece = gathered(scope, piece, gathers[number], box, step.path)
        found.append(Read(scope.as_value(piece, ref, origin.substep), box))
    return tuple(found)


def _scheduled(graph: Graph, index: int) -> Operation:
    node = graph.nodes[index]
    assert isinstance(node, Apply)
    return node.operation
