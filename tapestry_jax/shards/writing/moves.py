"""Changes of layout as moves of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tapestry_jax.planning.geometry.changes import Cast, Change, Deal, Exchange, Gather, Overlap, Reorder, Share, Slice
from tapestry_jax.planning.geometry.hops import sends
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.schedule import Convert
from tapestry_jax.shards.parts import Move, Piece
from tapestry_jax.shards.ranges import Range
from tapestry_jax.shards.writing.scope import Scope


def write_convert(scope: Scope, step: Convert) -> None:
    """The piece of a slot that another piece becomes."""
    if step.source in scope.totals:
        scope.totals.add(step.result)
        return
    source = scope.held[step.source]
    known, box = scope.tables.pieces[source], scope.box_of_slot(step.result)
    shares = any(isinstance(change, Share) for change in step.changes)
    if box == known.box and not shares:
        scope.held[step.result] = source
        return
    loops = scope.loops if len(scope.loops) > len(known.loops) else known.loops
    piece = replace(known, box=box, loops=loops, only=() if shares else known.only)
    scope.held[step.result] = _moved(scope, source, piece, step.changes, step.path)


def gathered(scope: Scope, source: int, changes: Sequence[Change], box: tuple[Range, ...], path: str) -> int:
    """What an operation gathers of a piece, to read it."""
    piece = replace(scope.tables.pieces[source], box=box, loops=scope.loops)
    return _moved(scope, source, piece, changes, path)


def _moved(scope: Scope, source: int, piece: Piece, changes: Sequence[Change], path: str) -> int:
    result = scope.tables.piece(piece)
    over = dict.fromkeys(axis for change in changes for axis in _sent_over(scope, change))
    how = tuple(name for change in changes for name in _names(change))
    scope.tables.steps.append(Move(path, source, result, tuple(over), how))
    return result


def _sent_over(scope: Scope, change: Change) -> tuple[str, ...]:
    match change:
        case Gather(_, axes, _, _) | Share(axes):
            return scope.real(axes)
        case Exchange(_, _, _, _, cut) | Deal(_, cut):
            return scope.real(cut.axes)
        case Overlap(_, _, cut, _):
            return scope.real(in_space(cut.axes)) if sends(change, scope.common.mesh) else ()
        case Cast() | Slice() | Reorder():
            return ()


def _names(change: Change) -> tuple[str, ...]:
    match change:
        case Cast():
            return ()
        case Slice():
            return ("slice",)
        case Gather():
            return ("all-gather",)
        case Exchange() | Deal():
            return ("all-to-all",)
        case Reorder():
            return ("reorder",)
        case Overlap():
            return ("neighbours",)
        case Share():
            return ("share",)
