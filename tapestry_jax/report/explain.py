"""A plan as a table: for every operation where its dimensions go, what it costs, and what it communicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.planning.geometry.changes import Cast, Change, Reorder, Share, Slice
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import is_time
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.planning.prediction.collectives import Collective, collectives
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule
from tapestry_jax.report.steps import (
    again_text,
    amount,
    block_cost,
    change_text,
    collective_text,
    dims_of,
    kernels_of,
    turns_text,
)
from tapestry_jax.report.table import aligned

_DIMENSIONS, _NOTES, _LINE = 72, 96, 160
"""Beyond so many characters a cell of the table goes on in the next line."""
_UNCOUNTED = "more cells than XLA counts"


@dataclass(frozen=True)
class Row:
    """One line: an operation, or a change of layout."""

    path: str
    where: str
    flops: float | None
    bytes: int | None
    note: str
    times: int = 1


Sent = dict[str, list[Collective]]
"""Collectives by the path that causes them."""


def explain(graph: Graph, schedule: Schedule, grad: bool | int | Sequence[int] = False) -> str:
    """Write a schedule as a table.

    FLOPs are XLA's count for one device's block of the forward pass, bytes what the operation reads and writes there.
    Collective bytes are per device. The peak is the largest sum of values that are alive at once (with `grad`, of all
    values that a gradient needs, those of all turns of a loop too), before XLA fuses or reuses anything.

    Args:
      graph: the program.
      schedule: of a plan for it.
      grad: as in `plan.collectives`.

    Returns:
      The table as text.
    """
    found = collectives(schedule, grad)
    sent_by: Sent = {}
    for item in found:
        sent_by.setdefault(item.path, []).append(item)
    rows = list(_rows(schedule, sent_by))
    listed = {row.path for row in rows}
    # What a change of layout for an output sends belongs to no operation.
    rows += [
        Row(item.path, "", None, None, collective_text(item), item.times) for item in found if item.path not in listed
    ]
    header = ("operation", "dimensions", "FLOP", "bytes", "communication")
    body = [
        (
            row.path + (f"  x{row.times}" if row.times > 1 else ""),
            row.where,
            "" if row.flops is None else amount(row.flops),
            "" if row.bytes is None else amount(row.bytes),
            row.note,
        )
        for row in rows
    ]
    flops = sum(row.times * row.flops for row in rows if row.flops is not None)
    sent = sum(item.bytes * item.times for item in found)
    entering = [step for step in schedule.steps if isinstance(step, Convert) and step.enters]
    read = {step.source: step.result for step in reversed(entering)}
    inputs = [
        "\n    ".join(
            _parts(f"{node.name} {node.results[0]}: {_storage(schedule, slot, read.get(slot, slot))}", " ", _LINE)
        )
        for node, slot in zip(graph.inputs, schedule.inputs, strict=True)
    ]
    lines = [
        f"{graph.name} on the mesh {schedule.mesh}",
        "inputs:",
        *(f"  {line}" for line in inputs),
        *_table(header, body),
    ]
    least = "at least " * any(_UNCOUNTED in row.note for row in rows)
    lines.append(f"one device, forward: {least}{amount(flops)}FLOP")
    lines.append(f"communication{' with gradients' if grad is not False else ''}: {len(found)} collectives, {sent:,} B")
    lines.append(f"values alive at once: {amount(alive_at_once(schedule, grad))}B")
    return "\n".join(lines)


def _table(header: tuple[str, ...], body: list[tuple[str, ...]]) -> list[str]:
    rows = aligned([header, *(line for cells in body for line in _broken(cells))], right=(2, 3))
    rule = "  ".join("-" * len(cell) for cell in rows[0])
    head, *lines = ("  ".join(row).rstrip() for row in rows)
    return [head, rule, *lines, rule]


def _broken(cells: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    """A row whose dimensions or notes are long, on several lines."""
    path, where, flops, size, note = cells
    dims, notes = _parts(where, " ", _DIMENSIONS), _parts(note, "; ", _NOTES)
    yield path, dims[0], flops, size, notes[0]
    for left, right in zip_longest(dims[1:], notes[1:], fillvalue=""):
        yield "", left, "", "", right


def _parts(text: str, separator: str, width: int) -> list[str]:
    """A text in lines of at most `width` characters, broken at a separator, as far as it has any."""
    lines = [""]
    for part in text.split(separator):
        joined = f"{lines[-1]}{separator}{part}" if lines[-1] else part
        if lines[-1] and len(joined) > width:
            lines[-1] += separator.rstrip()
            lines.append(part)
        else:
            lines[-1] = joined
    return lines


def _rows(schedule: Schedule, found: Sent, times: int = 1, given: Sequence[str] | None = None) -> Iterable[Row]:
    """The rows of a schedule, whose inputs are `given` names: in a loop in time they are not those of its graph."""
    listed = [node.name for node in schedule.graph.inputs] if given is None else given
    known = _results(schedule) | dict(zip(schedule.inputs, listed, strict=False))
    units = {unit.first: unit for unit in schedule.again}
    for number, step in enumerate(schedule.steps):
        if number in units:
            yield Row(units[number].path, again_text(units[number].keeps), None, None, "", times)
        match step:
            case Convert():
                if _is_boundary(step):
                    yield from _boundary_rows(schedule, step, found, times)
                elif not _is_chunk(step):
                    yield from _change_rows(schedule, step.source, step.changes, step.path, times, known)
            case Run():
                if is_barrier(schedule.graph.nodes[step.node]):
                    continue
                for place, changes in step.gathers:
                    yield from _change_rows(schedule, step.operands[place], changes, step.path, times, known)
                yield _run_row(schedule, step, found, times)
                # An operation that several turns of a loop repeat in a row says once what they send.
                if not step.carried:
                    found.pop(step.path, None)
            case Repeat():
                again = f", {again_text(step.keeps)}" * step.remat
                yield Row(step.path, f"{'at most ' * step.until}{step.length} turns{again}", None, None, "", times)
                yield from _rows(step.body, found, times * step.length)
            case Region():
                notes = [collective_text(item, times) for item in found.get(step.path, ())]
                yield Row(step.path, turns_text(schedule, step), None, None, "; ".join(notes), times)
                names = [known.get(slot, "value") for slot in step.operands]
                yield from _rows(step.body, found, times * step.turns(schedule.mesh), names)
            case Finish():
                notes = [collective_text(item) for item in found.get(step.path, ())]
                if notes:
                    yield Row(step.path, "states of all turns", None, None, "; ".join(notes), times)


def _is_chunk(step: Convert) -> bool:
    """Whether a turn only takes its chunk of an operand."""
    return all(isinstance(change, Slice) and all(map(is_time, change.cut.axes)) for change in step.changes)


def _change_rows(
    schedule: Schedule, source: int, changes: Sequence[Change], path: str, times: int, known: Mapping[int, str]
) -> Iterable[Row]:
    names = schedule.slots[source].type.names
    told = [change for change in changes if not isinstance(change, Cast | Reorder | Share)]
    moves = [change_text(change, names, schedule.mesh) for change in told]
    if moves:
        yield Row(f"  {known.get(source, 'value')} for {path}", ", ".join(moves), None, None, "", times)


def _is_boundary(step: Convert) -> bool:
    """Whether an argument enters the program, or a result leaves it (or a loop), in another layout."""
    return step.enters or "/output " in f"/{step.path}"


def _boundary_rows(schedule: Schedule, step: Convert, found: Sent, times: int) -> Iterable[Row]:
    """What an argument or a result that is stored otherwise costs: forwards, and with gradients."""
    names = schedule.slots[step.source].type.names
    moves = [change_text(change, names, schedule.mesh) for change in step.changes]
    notes = [collective_text(item) for item in found.get(step.path, ())]
    if any(moves) or notes:
        yield Row(step.path, ", ".join(filter(None, moves)), None, None, "; ".join(notes), times)


def _storage(schedule: Schedule, stored: int, entered: int) -> str:
    """How an argument is stored, and why where that is not how its first user reads it."""
    slot, read = schedule.slots[stored], schedule.slots[entered].layout
    kind, mesh = slot.type, schedule.mesh
    axes = list(zip(kind.names, kind.shape, slot.layout.cuts, read.cuts, strict=True))
    told = [
        f"{name} of {size} does not divide over {_pieces(wanted, mesh)}, is sliced inside"
        for name, size, have, wanted in axes
        if wanted is not None and have != wanted and size % mesh.size(wanted.axes)
    ]
    told += [
        f"{name} of {size} in padded pieces over {_pieces(have, mesh)}"
        for name, size, have, _ in axes
        if have is not None and have.block * mesh.size(have.axes) != size
    ]
    return "; ".join([slot.layout.describe(kind.names), *told])


def _pieces(cut: Cut, mesh: MeshShape) -> str:
    return "+".join(f"{axis}={mesh.size((axis,))}" for axis in cut.axes)


def _run_row(schedule: Schedule, step: Run, found: Sent, times: int) -> Row:
    where = " ".join(f"{name}:{text}" if text else name for name, text in dims_of(schedule, step))
    flops, size = block_cost(schedule, step)
    uncounted = [] if flops is not None else [_UNCOUNTED]
    notes = [] if step.carried else [collective_text(item) for item in found.get(step.path, ())]
    return Row(
        step.path, where or "-", flops, size, "; ".join([*uncounted, *kernels_of(schedule, step), *notes]), times
    )


def _results(schedule: Schedule) -> dict[int, str]:
    """Who makes a value."""
    steps = [step for step in schedule.steps if not isinstance(step, Convert)]
    return {slot: step.path for step in steps for slot in step.results}
