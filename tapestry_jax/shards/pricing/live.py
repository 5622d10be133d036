"""Which pieces of a program anybody needs: XLA computes and sends no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tapestry_jax.shards.parts import Block, Merge, Move, Next, Present, Program, Repeat, Step, Take, View


def reads_of(step: Step) -> tuple[int, ...]:
    """The pieces that a step reads."""
    match step:
        case Block():
            return tuple(read.piece for read in step.reads)
        case Merge() | Present():
            return step.sources
        case Move() | View() | Next():
            return (step.source,)
        case Repeat():
            return step.operands
        case Take():
            return ()


def results_of(step: Step) -> tuple[int, ...]:
    """The pieces that a step makes."""
    match step:
        case Block() | Merge() | Present() | Repeat():
            return step.results
        case Move() | View() | Next() | Take():
            return (step.result,)


def check_order(program: Program) -> None:
    """Check that every piece is made by one step, before it is read: who follows pieces back comes to an end.

    Raises:
      ValueError: for blocks of a file that nobody has proved.
    """
    made: set[int] = set()
    for step in program.steps:
        results = results_of(step)
        if not made.issuperset(reads_of(step)) or not made.isdisjoint(results):
            path = getattr(step, "path", getattr(step, "name", "next"))
            raise ValueError(f"`{path}` reads what is not made before it, or makes what is there")
        made.update(results)


def live_pieces(program: Program, outputs: Iterable[int]) -> frozenset[int]:
    """The pieces that these pieces are made of, they among them; nothing flows through those without a cell."""
    has_cells = [all(own.limit[0] < own.limit[1] for own in piece.box) for piece in program.pieces]
    found = {piece for piece in outputs if has_cells[piece]}
    for step in reversed(program.steps):
        if found.isdisjoint(results_of(step)):
            continue
        if isinstance(step, Repeat):
            wanted = taken_by(step, [piece in found for piece in step.results])
            reads = [piece for piece, takes in zip(step.operands, wanted, strict=True) if takes]
        else:
            reads = reads_of(step)
        found.update(piece for piece in reads if has_cells[piece])
    return frozenset(found)


def live_in_body(step: Repeat, results: Sequence[bool]) -> frozenset[int]:
    """The pieces that the turns of a loop need, of whose `results` some are needed: what is carried to them, too."""
    outputs = [piece for _, piece in step.body.outputs]
    takes = [each.result for each in step.body.steps if isinstance(each, Take)]
    wanted = [*results]
    while True:
        live = live_pieces(step.body, [piece for piece, needed in zip(outputs, wanted, strict=True) if needed])
        carried = [takes[place] in live or (step.until and place == 0) for place in range(step.carries)]
        more = [needed or (place < step.carries and carried[place]) for place, needed in enumerate(wanted)]
        if more == wanted:
            return live
        wanted = more


def taken_by(step: Repeat, results: Sequence[bool]) -> list[bool]:
    """Which operands a loop needs."""
    live = live_in_body(step, results)
    takes = [each.result for each in step.body.steps if isinstance(each, Take)]
    return [piece in live or (place < step.carries and results[place]) for place, piece in enumerate(takes)]
