"""Folds: the pieces of a state, how they merge, and what the state is presented as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.graphs.nodes import Ref
from combinators.index_space.tensor_type import TensorType
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.folding.merges import merges
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.reads import fold_axes
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Run
from tapestry_jax.shards.parts import Merge, Piece, Present, Value
from tapestry_jax.shards.writing.scope import Scope

_ROUTES = {"frame": "frame", "ordered": "in order"}


def state_pieces(
    scope: Scope, step: Run, shaped: Shaped, cuts: dict[str, Cut], axes: tuple[str, ...], substep: int
) -> tuple[int, ...]:
    """Pieces of the leaves of a state, still in pieces over some coordinates."""
    tables = scope.tables
    if step.node not in scope.states:
        kinds = [TensorType.make((None,) * len(leaf.shape), leaf.shape, leaf.dtype) for leaf in shaped.state]
        scope.states[step.node] = tuple(tables.value(Value(kind, step.path, state=True)) for kind in kinds)
    found: list[int] = []
    for value, leaf, names in zip(scope.states[step.node], shaped.state, shaped.carrier, strict=True):
        box = tuple(scope.range_of(cuts.get(name), size) for name, size in zip(names, leaf.shape, strict=True))
        found.append(tables.piece(Piece(value, box, scope.loops, axes, substep)))
    return tuple(found)


def merged(
    scope: Scope,
    step: Run | Finish | Region,
    shaped: Shaped,
    state: tuple[int, ...],
    over: Sequence[str],
    *,
    turns: bool = False,
) -> tuple[int, ...]:
    """The state merged along some coordinates."""
    real, tables = scope.real(over), scope.tables
    if not real:
        return state
    results: list[int] = []
    for piece in state:
        known = tables.pieces[piece]
        left = tuple(axis for axis in known.partial if axis not in real)
        loops = tuple(loop for loop in known.loops if loop not in real)
        results.append(tables.piece(replace(known, partial=left, loops=loops)))
    monoid = shaped.operation.monoid
    assert monoid is not None
    kinds = dict.fromkeys(merge.kind for merge in merges(shaped))
    how = "turn by turn" if turns else ", ".join(_ROUTES.get(kind, "all-reduce") for kind in kinds)
    path = shaped.operation.name if isinstance(step, Region) else step.path
    tables.steps.append(Merge(path, state, tuple(results), real, how))
    return tuple(results)


def present(scope: Scope, step: Run | Finish, makes: Sequence[int], state: tuple[int, ...], substep: int) -> None:
    """The results that a state is presented as."""
    results = tuple(scope.piece(value, slot, substep=substep) for value, slot in zip(makes, step.results, strict=True))
    scope.held.update(zip(step.results, results, strict=True))
    scope.tables.steps.append(Present(step.path, state, results))


def write_finish(scope: Scope, step: Finish) -> None:
    """What is left to do for a fold behind the loop that carried its state."""
    shaped, origin = scope.schedule.graph.shaped(step.node), scope.origins.nodes[step.node]
    if shaped.operation.over is not None:
        scope.totals.update(step.results)
        return
    assert origin.node is not None
    results = range(len(scope.tables.graph.nodes[origin.node].results))
    makes = [scope.tables.refs[Ref(origin.node, number)] for number in results]
    state = tuple(scope.held[slot] for slot in step.operands)
    over = in_space(fold_axes(shaped, dict(step.cuts)))
    present(scope, step, makes, merged(scope, step, shaped, state, over), origin.substep)
