"""The steps of repetitions: loops over turns or layers, and pipelines whose layers are stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from combinators.graphs.nodes import Loop, Ref
from tapestry_jax.planning.entries.stage_rules import no_microbatches
from tapestry_jax.planning.geometry.changes import Cast, Share
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.opening import part_of, stacked
from tapestry_jax.planning.geometry.time_axis import dim_of, label, ring_of, spread
from tapestry_jax.planning.scheduling.demands import Demands
from tapestry_jax.planning.scheduling.frame import Frame
from tapestry_jax.planning.scheduling.regions import Group
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Schedule, Step

Layouts = Mapping[int, Layout]
Axes = frozenset[str]
RunBody = Callable[[Demands, Layouts, Layouts, tuple[str, ...], Mapping[int, Axes], Axes], Schedule]


def schedule_repetition(demands: Demands, index: int, frame: Frame, run: RunBody) -> None:
    """Add the step of a repetition.

    Args:
      demands: of the graph.
      index: the repetition's node.
      frame: where steps are collected.
      run: schedules a body: its demands, layouts of its inputs and of its carries, the loops in time that are open, the
        mesh axes over which its inputs vary, and those of the stages.
    """
    node = demands.graph.nodes[index]
    assert isinstance(node, Loop)
    path = demands.prefix + node.path
    body, stage = demands.bodies[index], demands.stages.get(index)
    if stage is not None and not frame.stages >= set(stage.axes):
        raise no_microbatches(node, path)
    reader = path if stage is None else _pipeline_path(path, frame.opened[-1])
    layouts: dict[int, Layout] = {}
    operands: list[int] = []
    for position, operand in enumerate(node.operands):
        ref = demands.source(operand)
        home = frame.layout_of(ref)
        if position < node.carries:
            layouts[position] = demands.carried(index, position, frame.opened)
            take = frame.convert if stage is None else frame.enter
            operands.append(take(ref, layouts[position], spread(layouts[position].axes), reader))
            continue
        slot = position - node.carries
        at = node.axes[slot] if slot < len(node.axes) else None
        if stage is not None:
            home = Layout(tuple(None if cut and set(cut.axes) & set(stage.axes) else cut for cut in home.cuts))
        if at is not None:
            # The loop runs over all slices on every device, or over those of its stage.
            home = home.with_cut(at, stage)
        home = _in_turn(home, demands.reads(index, position), frame.opened)
        axes = spread(home.axes)
        if frame.parent is not None:
            # Cast before the loop in time: gradients are then summed over the mesh once, not in every turn.
            axes |= demands.axes_read(index, position) or frozenset()
        operands.append(frame.convert(ref, home, axes, reader))
        layouts[position] = home if at is None else Layout(home.cuts[:at] + home.cuts[at + 1 :])
    body.widen(layouts)
    carried = {carry: layouts[carry] for carry in range(node.carries)}
    varying = {p: frame.slots[slot].varying for p, slot in enumerate(operands)}
    inside = run(body, layouts, carried, frame.opened, varying, frame.stages)
    inside, prologue = _hoisted(inside, node)
    results: list[int] = []
    for number in range(len(node.results)):
        layout = inside.slots[inside.outputs[number]].layout
        if number >= node.carries:
            layout = Layout((stage, *layout.cuts))
        results.append(frame.store(Ref(index, number), layout))
    length = node.length if stage is None else stage.block
    wiring = index, tuple(operands), tuple(results), inside, prologue
    repeat = Repeat(*wiring, length, node.carries, node.axes, path, stage, node.length, until=node.until)
    frame.steps.append(repeat)


def schedule_pipeline(demands: Demands, index: int, group: Group, frame: Frame, run: RunBody) -> None:
    """Add a repetition whose turns are stages: the loop over chunks in which each hands its own on to the next."""
    node, axis, stages = demands.graph.nodes[index], group.axis, demands.stages[index].axes
    assert isinstance(node, Loop)
    path = _pipeline_path(demands.prefix + node.path, axis)
    inner = Frame(demands.graph, frame.mesh, (*frame.opened, axis), frame, frozenset(stages))
    schedule_repetition(demands, index, inner, run)
    handed = tuple(inner.home[Ref(index, carry)] for carry in range(node.carries))
    wanted = demands.wanted_outside(group.nodes)
    made = [ref for ref in inner.home if ref in wanted]
    body = inner.schedule(tuple(inner.inputs), (*handed, *(inner.home[ref] for ref in made)))
    results: list[int] = []
    shared: list[Convert] = []
    for ref in made:
        slot = inner.slots[inner.home[ref]]
        outside = replace(slot, layout=stacked(slot.layout, axis))
        if ref.output >= node.carries:
            results.append(frame.store(ref, outside.layout, outside.varying))
            continue
        # The last stage alone has been through all layers.
        results.append(frame.add(outside))
        everywhere = frame.store(ref, outside.layout, outside.varying - set(stages))
        shared.append(Convert(results[-1], everywhere, (Share(stages),), path))
    wiring = axis, tuple(inner.operands), tuple(results), body
    handed_on = tuple(inner.handed)
    frame.steps.append(Region(*wiring, (), (), (), reverse=False, path=path, stages=stages, handed=handed_on))
    frame.steps += shared


def _pipeline_path(path: str, axis: str) -> str:
    return f"{path} by {label(axis)} of {dim_of(axis)}"


def _in_turn(home: Layout, reads: Sequence[Layout], opened: tuple[str, ...]) -> Layout:
    """The layout `home`, but cut in time as the body of a repetition reads it: each turn hands it one chunk."""
    for axis in opened:
        read = part_of(reads[0], axis) if reads else ()
        if any(cut is not None and axis in cut.axes for cut in read):
            # Nothing else lies on the mesh axes of what the body reads there: a value lies along each of them once.
            taken = {ring_of(axis), *(name for cut in read if cut is not None for name in cut.axes)}
            kept = (None if cut is not None and taken.intersection(cut.axes) else cut for cut in home.cuts)
            home = Layout(tuple(own or cut for own, cut in zip(read, kept, strict=True)))
    return home


def _hoisted(body: Schedule, node: Loop) -> tuple[Schedule, tuple[Convert, ...]]:
    """Take what depends on constants alone, and casts of stacked operands, out of the loop: once, not every turn."""
    constant = set(body.inputs[node.carries + len(node.axes) :])
    slices = set(body.inputs[node.carries : node.carries + len(node.axes)])
    prologue: list[Convert] = []
    steps: list[Step] = []
    for step in body.steps:
        if isinstance(step, Convert) and step.source in constant:
            constant.add(step.result)
            prologue.append(step)
        elif isinstance(step, Convert) and step.source in slices and all(isinstance(c, Cast) for c in step.changes):
            slices.add(step.result)
            # Turns have turned their gradients already, before these are stacked.
            plain = tuple(replace(change, order=()) for change in step.changes if isinstance(change, Cast))
            prologue.append(replace(step, changes=plain))
        else:
            steps.append(step)
    return replace(body, steps=tuple(steps)), tuple(prologue)
