"""A sharded graph as text: one line a step, boxes as affine functions of devices and turns."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_jax.shards.blocks_at import count_blocks
from tapestry_jax.shards.parts import Block, Merge, Move, Next, Present, Program, Ranges, Repeat, Shared, Take, View
from tapestry_jax.shards.ranges import Range


def show(shared: Shared, program: Program) -> str:
    """The text."""
    axes = ", ".join(f"{each.name}={each.count}" for each in shared.coordinates if each.kind == "axis")
    lines = [f"{program.name} on {axes}", *_lines(shared, program, "")]
    return "\n".join(lines)


def range_text(own: Range) -> str:
    """`25*data:+25`, with what one index reads behind it where that is more than a cell."""
    terms = [f"{step}*{name}" if step != 1 else name for name, step in own.steps]
    if own.low or not terms:
        terms.insert(0, str(own.low))
    text = f"{'+'.join(terms)}:+{own.count}"
    if own.before or own.after:
        text += f" (-{own.before} +{own.after})"
    if (own.offset, own.stride, own.width) != (0, 1, 1):
        text += f" each {own.stride}i{own.offset:+d}:+{own.width}"
    return text + (f" dealt by {own.deal}" if own.deal else "")


def _lines(shared: Shared, program: Program, indent: str) -> list[str]:
    found: list[str] = []
    for step in program.steps:
        match step:
            case Take(name, result):
                found.append(f"{name}: taken as {_piece(program, result)}")
            case Block():
                found.append(_block(shared, program, step))
            case Move(path, source, result, over, how):
                along = f" along {', '.join(over)}" if over else ""
                found.append(
                    f"{path}: {' '.join(how) or 'move'}{along}, {_piece(program, source)} to {_piece(program, result)}"
                )
            case Merge(path, sources, _, over, how):
                found.append(f"{path}: {len(sources)} leaves merged along {', '.join(over)}, {how}")
            case Present(path, _, results):
                found.append(f"{path}: presented as {', '.join(_piece(program, each) for each in results)}")
            case View(path, source, result, names):
                renamed = ", ".join(f"{old} is {new}" for old, new in names)
                found.append(f"{path}: {_piece(program, source)} seen as {_piece(program, result)}, {renamed}")
            case Next(source, result):
                found.append(f"next iteration: {_piece(program, source)} taken as {_piece(program, result)}")
            case Repeat():
                stages = f" on stages of {range_text(step.stage)}" if step.stage is not None else ""
                found.append(f"{step.path}: {step.turns} turns of {step.depth} from iteration {step.first}{stages}")
                found += _lines(shared, step.body, "  ")
    found += [f"output {name}: {_piece(program, piece)}" for name, piece in program.outputs]
    return [indent + line for line in found]


def _block(shared: Shared, program: Program, step: Block) -> str:
    called = dict(step.names)
    dims = ", ".join(f"{called.get(dim, dim)} {range_text(own)}" for dim, own in step.box)
    reads = ", ".join(f"{_value(program, read.piece)}{_box(read.box)}" for read in step.reads)
    made = ", ".join(_piece(program, number) for number in step.results)
    count = count_blocks(shared, step)
    return f"{step.path}: {count} block{'s' * (count != 1)} [{dims}] reads {reads or 'nothing'}, makes {made}"


def _piece(program: Program, number: int) -> str:
    piece = program.pieces[number]
    partial = f" in pieces along {', '.join(piece.partial)}" if piece.partial else ""
    only = "".join(f" on {name}={value}" for name, value in piece.only)
    return f"{_value(program, number)}{_box(piece.box)}{partial}{only}"


def _value(program: Program, number: int) -> str:
    value = program.values[program.pieces[number].value]
    return f"state of {value.path}" if value.state else value.path


def _box(box: Ranges | Sequence[Range]) -> str:
    return "[" + ", ".join(map(range_text, box)) + "]"
