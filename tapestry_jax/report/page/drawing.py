"""A schedule as a picture: what stands in it, what leads where, and in which loops and scopes it lies. Data alone.

The picture is drawn from the steps, which are what lowering reads: an arrow is a value as its reader wants it, with the
layout that it has there, and what is sent on the way stands between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass
from combinators.graphs.nodes import Apply
from combinators.graphs.show import describe_node
from tapestry_jax.planning.geometry.changes import Change, Deal, Exchange, Gather, Overlap, Share
from tapestry_jax.planning.geometry.hops import sends
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Slot
from tapestry_jax.report.placed import said
from tapestry_jax.report.steps import again_text, block_cost, change_text, dims_of, kernels_of, turns_text

_SENT = {Gather: "all-gather", Exchange: "all-to-all", Deal: "all-to-all", Share: "all-reduce"}


@dataclass(frozen=True)
class Loop:
    """A loop of the program, or one in time, that nodes lie in.

    Attributes:
      path: of the loop.
      kind: `repeat` or `time`.
      what: how often it turns.
      number: among all loops, since two may have one path.
    """

    path: str
    kind: str
    what: str
    number: int


@dataclass(frozen=True)
class Node:
    """What stands in the picture.

    Attributes:
      path: of the operation; of what is sent, of the operation that wants it.
      kind: `input`, `operation`, `sent`, `merge` or `output`.
      loops: that it lies in, the outermost first.
      what: the operation in words, or what is sent.
      types: of its results.
      layouts: of its results.
      dims: of an operation, where its dimensions go.
      kernels: what runs in place of its own kernel.
      flops: of one block; None where nothing is computed.
      bytes: that a block reads and writes.
      times: how often it runs.
      sends: the kind of collective, of what is sent.
    """

    path: str
    kind: str
    loops: tuple[Loop, ...] = ()
    what: str = ""
    types: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    dims: tuple[tuple[str, str], ...] = ()
    kernels: tuple[str, ...] = ()
    flops: float | None = None
    bytes: int | None = None
    times: int = 1
    sends: str = ""


@dataclass(frozen=True)
class Edge:
    """A value on its way.

    Attributes:
      source: node.
      target: node.
      type: of the value.
      layout: as the target reads it.
      change: what becomes of it on the device, such as a slice; empty where nothing does.
      next: whether the target reads it in the next turn of a loop.
    """

    source: int
    target: int
    type: str
    layout: str
    change: str = ""
    next: bool = False


@dataclass(frozen=True)
class Drawing:
    """Nodes, in the order of the program, and edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def drawing(schedule: Schedule, *, counted: bool = True) -> Drawing:
    """The picture of a schedule.

    Args:
      schedule: of a plan.
      counted: whether FLOPs and bytes of blocks are counted, which lowers every operation once.
    """
    pen = _Pen(counted)
    made = [
        pen.add(Node(node.name, "input", (), "input", (str(slot.type),), (layout_text(slot),)))
        for node, slot in zip(schedule.graph.inputs, _slots(schedule, schedule.inputs), strict=True)
    ]
    known = {slot: _Made(number) for slot, number in zip(schedule.inputs, made, strict=True)}
    _draw(pen, schedule, known, (), 1)
    for (name, _), number in zip(schedule.graph.outputs, schedule.outputs, strict=True):
        slot = schedule.slots[number]
        node = pen.add(Node(name, "output", (), "output", (str(slot.type),), (layout_text(slot),)))
        pen.join(known.get(number), node, slot)
    return _ordered(pen.nodes, list(dict.fromkeys(pen.edges)))


def _ordered(nodes: list[Node], edges: list[Edge]) -> Drawing:
    """The same nodes, with every input before the first that reads it: arguments come in an order of their own."""
    first = dict[int, int]()
    for edge in edges:
        first[edge.source] = min(first.get(edge.source, len(nodes)), edge.target)
    ranks = [first.get(n, n) - 0.5 if node.kind == "input" else float(n) for n, node in enumerate(nodes)]
    order = sorted(range(len(nodes)), key=ranks.__getitem__)
    moved = {old: new for new, old in enumerate(order)}
    renumbered = (replace(edge, source=moved[edge.source], target=moved[edge.target]) for edge in edges)
    return Drawing(tuple(nodes[old] for old in order), tuple(renumbered))


def layout_text(slot: Slot) -> str:
    """`batch:data mlp:model`, the axes of a value that are cut; `whole` where none is."""
    axes = zip(slot.type.names, slot.type.shape, slot.layout.cuts, strict=True)
    return " ".join(f"{name or size}:{said(cut)}" for name, size, cut in axes if cut is not None) or "whole"


@dataclass(frozen=True)
class _Made:
    """Who makes a value, what has become of it on the device since, and as what it entered the innermost loop."""

    node: int
    change: str = ""
    carry: tuple[int, int] | None = None


Known = dict[int, _Made]


@dataclass(frozen=True)
class _Pen:
    """What has been drawn so far; `readers` of what a loop carries, by the loop and the slot of its body."""

    counted: bool
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    loops: list[int] = field(default_factory=list)
    readers: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def join(self, made: _Made | None, target: int, slot: Slot, *, next: bool = False) -> None:
        """An arrow to a node; from nowhere, such as the identity that a total begins with, comes none."""
        if made is not None:
            self.edges.append(Edge(made.node, target, str(slot.type), layout_text(slot), made.change, next))
            if made.carry is not None and not next:
                self.readers.setdefault(made.carry, []).append(target)

    def loop(self, path: str, kind: str, what: str, outer: tuple[Loop, ...]) -> tuple[Loop, ...]:
        self.loops.append(len(self.loops))
        return (*outer, Loop(path, kind, what, self.loops[-1]))


def _slots(schedule: Schedule, numbers: Sequence[int]) -> list[Slot]:
    return [schedule.slots[number] for number in numbers]


def _draw(pen: _Pen, schedule: Schedule, known: Known, loops: tuple[Loop, ...], times: int) -> None:
    """Draw the steps of a schedule; `known` says who makes its inputs, and then who makes everything."""
    again = {number: unit for unit in schedule.again for number in range(unit.first, unit.end)}
    for number, step in enumerate(schedule.steps):
        match step:
            case Convert():
                _convert(pen, schedule, step, known, loops, times)
            case Run():
                unit = again.get(number)
                told = "" if unit is None or step.kept else f"{again_text(unit.keeps)}, with {unit.path}"
                _run(pen, schedule, step, known, loops, times, told)
            case Finish():
                _finish(pen, schedule, step, known, loops, times)
            case Repeat():
                _repeat(pen, schedule, step, known, loops, times)
            case Region():
                _region(pen, schedule, step, known, loops, times)


def _convert(pen: _Pen, schedule: Schedule, step: Convert, known: Known, loops: tuple[Loop, ...], times: int) -> None:
    if step.source in known:
        slot = schedule.slots[step.source]
        known[step.result] = _changed(pen, schedule, known[step.source], slot, step.changes, step.path, loops, times)


def _changed(
    pen: _Pen,
    schedule: Schedule,
    made: _Made,
    slot: Slot,
    changes: Sequence[Change],
    path: str,
    loops: tuple[Loop, ...],
    times: int,
) -> _Made:
    """Who makes a value after some changes of layout: a node of its own where something is sent."""
    names, mesh = slot.type.names, schedule.mesh
    told = [text for text in (change_text(change, names, mesh) for change in changes) if text]
    sent = [kind for kind in (_sent(change, mesh) for change in changes) if kind]
    if not sent:
        return replace(made, change="; ".join([*filter(None, [made.change]), *told]))
    what = "; ".join(told) or f"{sent[0]} of what the last device holds"
    node = pen.add(Node(path, "sent", loops, what, (str(slot.type),), times=times, sends=sent[0]))
    pen.join(made, node, slot)
    return _Made(node)


def _sent(change: Change, mesh: MeshShape) -> str:
    """The kind of collective that a change is; empty where nothing is sent."""
    if isinstance(change, Overlap):
        return "collective-permute" if sends(change, mesh) else ""
    return next((kind for which, kind in _SENT.items() if isinstance(change, which)), "")


def _run(
    pen: _Pen, schedule: Schedule, step: Run, known: Known, loops: tuple[Loop, ...], times: int, told: str
) -> None:
    node = schedule.graph.nodes[step.node]
    if is_barrier(node):
        known |= {made: known[slot] for slot, made in zip(step.operands, step.results, strict=False) if slot in known}
        return
    read = dict(known)
    for place, changes in step.gathers:
        slot = step.operands[place]
        if slot in known:
            stored = schedule.slots[slot]
            read[slot] = _changed(pen, schedule, known[slot], stored, changes, step.path, loops, times)
    flops, size = block_cost(schedule, step) if pen.counted else (None, None)
    results = _slots(schedule, step.results)
    what = ", ".join(filter(None, (describe_node(node) if isinstance(node, Apply) else "", told)))
    number = pen.add(
        Node(
            step.path,
            "operation",
            loops,
            what,
            tuple(str(slot.type) for slot in results),
            tuple(map(layout_text, results)),
            tuple(dims_of(schedule, step)),
            tuple(kernels_of(schedule, step)),
            flops,
            size,
            times,
        )
    )
    for slot in dict.fromkeys(step.operands):
        pen.join(read.get(slot), number, schedule.slots[slot])
    known |= dict.fromkeys(step.results, _Made(number))


def _finish(pen: _Pen, schedule: Schedule, step: Finish, known: Known, loops: tuple[Loop, ...], times: int) -> None:
    results = _slots(schedule, step.results)
    types, layouts = tuple(str(slot.type) for slot in results), tuple(map(layout_text, results))
    number = pen.add(Node(step.path, "merge", loops, "states of all turns, merged", types, layouts, times=times))
    for slot in dict.fromkeys(step.operands):
        pen.join(known.get(slot), number, schedule.slots[slot])
    known |= dict.fromkeys(step.results, _Made(number))


def _repeat(pen: _Pen, schedule: Schedule, step: Repeat, known: Known, loops: tuple[Loop, ...], times: int) -> None:
    again = f", {again_text(step.keeps)}" * step.remat
    inner = pen.loop(
        step.path, "repeat", f"{'at most ' * step.until}{step.length} turn{'s' * (step.length != 1)}{again}", loops
    )
    body = step.body
    inside = {own: known[slot] for own, slot in zip(body.inputs, step.operands, strict=False) if slot in known}
    number = inner[-1].number
    for own in body.inputs[: step.carries]:
        if own in inside:
            inside[own] = replace(inside[own], carry=(number, own))
    for each in step.prologue:
        _convert(pen, body, each, inside, inner, times)
    _draw(pen, body, inside, inner, times * step.length)
    for own, out in zip(body.inputs[: step.carries], body.outputs[: step.carries], strict=True):
        for reader in dict.fromkeys(pen.readers.get((number, own), ())):
            pen.join(inside.get(out), reader, body.slots[own], next=True)
    known |= {made: inside[out] for made, out in zip(step.results, body.outputs, strict=True) if out in inside}


def _region(pen: _Pen, schedule: Schedule, step: Region, known: Known, loops: tuple[Loop, ...], times: int) -> None:
    inner = pen.loop(step.path, "time", turns_text(schedule, step), loops)
    body = step.body
    inside = {own: known[slot] for own, slot in zip(body.inputs, step.operands, strict=False) if slot in known}
    _draw(pen, body, inside, inner, times * step.turns(schedule.mesh))
    known |= {made: inside[out] for made, out in zip(step.results, step.results_inside, strict=True) if out in inside}
