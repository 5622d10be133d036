"""Whether a sharded graph that was read refers to nothing that it does not hold, so that nothing stumbles over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from combinators.errors import FormatError, message
from combinators.graphs.nodes import MOST_TURNS
from combinators.stored.json import shown
from tapestry_jax.shards.parts import Block, Merge, Move, Next, Present, Program, Repeat, Shared, Take, View
from tapestry_jax.shards.ranges import Range

MOST = 2**20
"""Cells outside of a tensor, or dealt cells, that are looked at one by one; bounds that programs do not reach."""


def check_references(shared: Shared, program: Program) -> None:
    """Check numbers of tensors, pieces and operations, names of coordinates, and what would take too long to count.

    Raises:
      FormatError: naming the step.
    """
    names = {each.name for each in shared.coordinates}
    for each in shared.coordinates:
        if not 0 <= each.count < 2**40:
            _refuse(each.name, f"count {each.count}")
        for name in each.along:
            _known(name, names, each.name)
    _check(shared, program, names)


def _check(shared: Shared, program: Program, names: set[str]) -> None:
    values, pieces = len(program.values), len(program.pieces)
    for number, piece in enumerate(program.pieces):
        where = f"piece {number}"
        _in(piece.value, values, "tensor", where)
        if len(piece.box) != program.values[piece.value].type.ndim:
            _refuse(where, f"{len(piece.box)} axes of a tensor {program.values[piece.value].type}")
        for name in (*piece.loops, *piece.partial, *(name for name, _ in piece.only)):
            _known(name, names, where)
        _check_box(piece.box, names, where)
    for step in program.steps:
        where = getattr(step, "path", getattr(step, "name", "next"))
        for piece in _pieces(step):
            _in(piece, pieces, "piece", where)
        match step:
            case Block():
                for operation in (step.operation, step.runs):
                    _in(operation, len(shared.operations), "operation", where)
                _check_box((own for _, own in step.box), names, where)
                for read in step.reads:
                    _check_box(read.box, names, where)
                    if len(read.box) != len(program.pieces[read.piece].box):
                        _refuse(where, f"{len(read.box)} axes of a piece of {len(program.pieces[read.piece].box)}")
                _check_makes(step.makes, values, where)
            case Repeat():
                _check_makes(step.makes, values, where)
                _known(step.turn, names, where)
                if min(step.turns, step.depth, step.first, step.carries) < 0 or step.carries > len(step.operands):
                    _refuse(where, f"{step.turns} turns of {step.depth}, {step.carries} carries")
                last = step.first + step.turns * step.depth
                if max(last, step.turns, step.depth, step.stage.limit[1] if step.stage else 0) > MOST_TURNS:
                    _refuse(where, f"{step.turns} turns of {step.depth}, and JAX counts {MOST_TURNS}")
                if step.stage is not None:
                    _check_box((step.stage,), names, where)
                _check(shared, step.body, names)
            case _:
                pass
    for name, piece in program.outputs:
        _in(piece, pieces, "piece", f"output {name}")
    for name, value in program.named:
        _in(value, values, "tensor", name)


def _pieces(step: Any) -> tuple[int, ...]:
    match step:
        case Take(_, result):
            return (result,)
        case Block(reads=reads, results=results):
            return (*(read.piece for read in reads), *results)
        case Move(_, source, result) | View(_, source, result) | Next(source, result):
            return source, result
        case Merge(_, sources, results) | Present(_, sources, results):
            return (*sources, *results)
        case Repeat(operands=operands, results=results):
            return (*operands, *results)
        case _:
            return ()


def _check_makes(makes: tuple[int, ...], values: int, where: str) -> None:
    for value in makes:
        _in(value, values, "tensor", where)
    if not makes:
        _refuse(where, "no tensor that it makes")


def _check_box(box: Iterable[Range], names: set[str], where: str) -> None:
    for own in box:
        for name in own.coordinates:
            _known(name, names, where)
        if len(set(own.coordinates)) < len(own.steps):
            _refuse(where, f"a coordinate twice: {own.steps}")
        low, high = own.limit
        outside = max(-own.offset - own.stride * low, 0) + own.before + own.after + own.width
        if own.mode != "valid" and (outside > MOST or high - low > 2**62):
            _refuse(where, f"{outside} cells outside of a tensor")
        if own.deal < 0 or (own.deal and own.count > MOST):
            _refuse(where, f"{own.count} cells that are dealt")


def _in(number: int, count: int, what: str, where: str) -> None:
    if not 0 <= number < count:
        _refuse(where, f"{what} {number} of {count}")


def _known(name: str, names: set[str], where: str) -> None:
    if name not in names:
        _refuse(where, f"the coordinate {shown(name)!r}")


def _refuse(where: str, what: str) -> None:
    told = message(f"{shown(where)} refers to what the file does not hold.", f"got {what}", remedy="Mend that step.")
    raise FormatError(told)
