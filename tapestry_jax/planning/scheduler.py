"""From a graph and placements to a schedule: pure data in, pure data out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from combinators.errors import PlanError, message
from combinators.graph import Apply, Graph, Input, Loop, Ref
from combinators.shaped import Shaped
from combinators.tensor_type import TensorType
from tapestry_jax.planning.changes import Cast, Share
from tapestry_jax.planning.demands import Demands
from tapestry_jax.planning.frame import Frame
from tapestry_jax.planning.layout import Cut, Layout
from tapestry_jax.planning.merging import varying_leaves
from tapestry_jax.planning.mesh_shape import MeshShape
from tapestry_jax.planning.opening import made_outside, stacked, streams
from tapestry_jax.planning.placement import Placer
from tapestry_jax.planning.reads import Cuts, all_axes, fold_axes, result_layout
from tapestry_jax.planning.regions import Group, Item
from tapestry_jax.planning.schedule import Convert, Finish, Region, Repeat, Run, Scatter, Schedule, Slot, Step
from tapestry_jax.planning.stage_rules import no_microbatches
from tapestry_jax.planning.time_axis import dim_of, in_space, in_time, label, spread
from tapestry_jax.planning.totals import Wiring, first_passes, passed_through


def schedule_graph(
    graph: Graph, mesh: MeshShape, placer: Placer, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]
) -> Schedule:
    """Write a graph out as the steps of one device.

    Args:
      graph: the program.
      mesh: the shape of the mesh.
      placer: says where the dimensions of each operation go.
      inputs: layouts of inputs by position; the others come as their first user wants them.
      outputs: layouts of outputs by position; the others leave as they are produced.

    Raises:
      PlanError: where a placement cannot hold.
    """
    demands = Demands(graph, mesh, placer, "")
    demands.take_free(inputs, outputs)
    return _Scheduler(demands).run(inputs, outputs)


class _Scheduler:
    """One pass over the operations of one graph, loop by loop; values get slots."""

    def __init__(self, demands: Demands) -> None:
        self._demands, self._graph, self._prefix = demands, demands.graph, demands.prefix

    def run(
        self,
        inputs: Mapping[int, Layout],
        outputs: Mapping[int, Layout],
        opened: tuple[str, ...] = (),
        varying: Mapping[int, frozenset[str]] | None = None,
        stages: frozenset[str] = frozenset(),
    ) -> Schedule:
        demands, frame = self._demands, Frame(self._graph, self._demands.mesh, opened, stages=stages)
        given: list[int] = []
        for index, node in enumerate(self._graph.nodes):
            if isinstance(node, Input):
                first = [
                    layout if self._prefix else layout.in_blocks for layout in demands.wanted(Ref(index, 0), opened)
                ]
                default = first[0] if first else Layout.whole(node.results[0].ndim)
                axes = (varying or {}).get(len(given))
                given.append(frame.store(Ref(index, 0), inputs.get(len(given), default), axes))
                held = demands.held.get(len(given) - 1)
                if held is not None:
                    path = f"{self._prefix}{node.name}"
                    frame.home[Ref(index, 0)] = frame.convert(Ref(index, 0), held, spread(held.axes), path)
        self._run_items(demands.arranged(opened), frame, outputs)
        results: list[int] = []
        for position, (name, output) in enumerate(self._graph.outputs):
            ref = demands.source(output)
            home = frame.layout_of(ref).stored(self._graph.type_of(ref).shape, frame.mesh)
            # Arguments and results keep the order of their cells; inside, stripes stay what they are.
            layout = outputs.get(position, home if self._prefix else home.in_blocks)
            results.append(frame.convert(ref, layout, spread(layout.axes), f"{self._prefix}output {name}"))
        return frame.schedule(tuple(given), tuple(results))

    def _run_items(self, items: Iterable[Item], frame: Frame, outputs: Mapping[int, Layout]) -> None:
        for item in items:
            if isinstance(item, Group):
                index = item.items[0]
                if isinstance(index, int) and index in self._demands.stages:
                    self._pipeline(index, item, frame)
                else:
                    self._region(item, frame, outputs)
                continue
            node = self._graph.nodes[item]
            if isinstance(node, Apply):
                self._run(item, node, frame, outputs)
            elif isinstance(node, Loop):
                self._repeat(item, node, frame)

    # Operations

    def _run(self, index: int, node: Apply, frame: Frame, outputs: Mapping[int, Layout]) -> None:
        demands = self._demands
        shaped, cuts, path = demands.shaped[index], demands.cuts[index], self._prefix + node.path
        axes = spread(all_axes(cuts.values())) | frame.stages
        operands = tuple(
            frame.convert(demands.source(ref), layout, axes, path)
            for ref, layout in zip(node.operands, demands.operand_layouts(index), strict=True)
        )
        if in_time(fold_axes(shaped, cuts)):
            kinds = [self._graph.type_of(ref).struct for ref in node.operands]
            # Devices in different turns have different counts.
            varies = None if frame.stages else varying_leaves(shaped, kinds, cuts, frame.mesh)
            results = _state_slots(frame, shaped, cuts, axes, varies=varies)
            frame.states[index] = results
            frame.steps.append(Run(index, operands, results, tuple(cuts.items()), axes, None, path, carried=True))
            return
        results, scatter = self._results(index, cuts, frame, outputs)
        over = shaped.operation.over
        carried = over in cuts and bool(in_time(cuts[over].axes))
        if carried:
            before, after = (_state_slots(frame, shaped, cuts, axes, without=over) for _ in range(2))
            frame.totals[index] = before, after
            operands, results = operands + before, results + after
        frame.steps.append(Run(index, operands, results, tuple(cuts.items()), axes, scatter, path, carried=carried))

    def _results(
        self, index: int, cuts: Cuts, frame: Frame, outputs: Mapping[int, Layout]
    ) -> tuple[tuple[int, ...], Scatter | None]:
        """Slots of the results, one of them scattered where all its consumers want that."""
        shaped = self._demands.shaped[index]
        natural = [result_layout(result, shaped.sizes, cuts) for result in shaped.result_axes]
        scatter = self._scatter(index, shaped, cuts, natural[0], outputs, frame) if len(natural) == 1 else None
        if scatter is not None:
            natural = [natural[0].with_cut(scatter.axis, scatter.cut)]
        return tuple(frame.store(Ref(index, number), layout) for number, layout in enumerate(natural)), scatter

    def _scatter(
        self,
        index: int,
        shaped: Shaped,
        cuts: Cuts,
        natural: Layout,
        outputs: Mapping[int, Layout],
        frame: Frame,
    ) -> Scatter | None:
        """Where every consumer wants the sum cut over the very axes that it is folded over."""
        operation, demands = shaped.operation, self._demands
        folded = in_space(fold_axes(shaped, cuts))
        plain = operation.monoid is not None and operation.monoid.native == "sum"
        # Results are presented cell by cell, so what is scattered may be presented after it.
        if not folded or not plain or len(shaped.state) != 1 or shaped.carrier != shaped.result_names:
            return None
        ref = Ref(index, 0)
        wanted = demands.wanted(ref, frame.opened)
        for position, (_, output) in enumerate(self._graph.outputs):
            if demands.source(output) == ref:
                wanted.append(outputs.get(position, natural))
        if not wanted:
            return None
        first = wanted[0]
        if any(demand != first for demand in wanted):
            return None
        gained = [axis for axis, (a, b) in enumerate(zip(natural.cuts, first.cuts, strict=True)) if a != b]
        if len(gained) != 1 or natural.cuts[gained[0]] is not None:
            return None
        cut = first.cuts[gained[0]]
        return Scatter(gained[0], cut.in_blocks) if cut is not None and cut.axes == folded else None

    # Loops in time

    def _region(self, group: Group, frame: Frame, outputs: Mapping[int, Layout]) -> None:
        axis, mesh = group.axis, frame.mesh
        inner = Frame(self._graph, mesh, (*frame.opened, axis), frame)
        self._run_items(group.items, inner, outputs)
        states = [(node, slots) for node, slots in inner.states.items() if axis in self._fold_axes(node)]
        # Where the loop runs over a dimension of the state, each turn makes another piece of it.
        pieces = [(node, slots) for node, slots in inner.states.items() if axis not in self._fold_axes(node)]
        wanted = self._wanted_outside(group)
        made = [ref for ref in inner.home if ref in wanted and streams(inner.layout_of(ref), axis)]
        results: list[int] = []
        for node, slots in states:
            frame.states[node] = tuple(frame.add(inner.slots[slot]) for slot in slots)
            results += frame.states[node]
        for node, slots in pieces:
            known = [inner.slots[slot] for slot in slots]
            frame.states[node] = tuple(frame.add(replace(s, layout=stacked(s.layout, axis))) for s in known)
            results += frame.states[node]
        for ref in made:
            slot = inner.slots[inner.home[ref]]
            results.append(frame.store(ref, stacked(slot.layout, axis), slot.varying))
        path = f"{self._prefix}{dim_of(axis)} in {label(axis)}"
        totals = [(node, before, after) for node, (before, after) in inner.totals.items()]
        around = [total for total in totals if axis not in self._scanned(total[0]).axes]
        # Scans that go on from other devices come first, since their starts are operands.
        own = sorted((t for t in totals if t not in around), key=lambda t: not in_space(self._scanned(t[0]).axes))
        passed = passed_through(around, axis, inner, frame, path)
        results += (outer for outer, _ in passed)
        reverse = self._direction([node for node, _, _ in own], axis)
        meshed = [total for total in own if in_space(self._scanned(total[0]).axes)]
        starts = first_passes(Wiring(axis, frame, inner, reverse, path), meshed, partial(self._before, frame))
        given = (*inner.inputs, *(slot for _, before, _ in own for slot in before))
        added = (*(s for _, slots in states for s in slots), *(s for _, _, after in own for s in after))
        parts = (
            *(s for _, slots in pieces for s in slots),
            *(inner.home[ref] for ref in made),
            *(s for _, s in passed),
        )
        body = inner.schedule(given, (*added, *parts))
        folds = tuple((node, len(slots)) for node, slots in states)
        scans = tuple((node, len(after)) for node, _, after in own)
        frame.steps.append(
            Region(
                axis,
                (*inner.operands, *starts),
                tuple(results),
                body,
                tuple(inner.rotating),
                folds,
                scans,
                reverse,
                path,
            )
        )
        for node, _ in states:
            if not set(in_time(self._fold_axes(node))) & set(frame.opened):
                self._finish(node, frame, outputs)

    def _fold_axes(self, index: int) -> tuple[str, ...]:
        return fold_axes(self._demands.shaped[index], self._demands.cuts[index])

    def _scanned(self, index: int) -> Cut:
        """The cut of the dimension that a scan runs over."""
        over = self._demands.shaped[index].operation.over
        assert over is not None
        return self._demands.cuts[index][over]

    def _before(self, frame: Frame, index: int, totals: tuple[int, ...]) -> tuple[int, ...]:
        """Add the step that tells every device what the devices before it come to."""
        cuts = made_outside(self._demands.cuts[index], frame.opened, ())
        axes = spread(all_axes(cuts.values()))
        results = tuple(frame.add(frame.slots[slot]) for slot in totals)
        path = self._prefix + self._graph.nodes[index].path
        frame.steps.append(Finish(index, totals, results, tuple(cuts.items()), axes, None, path))
        return results

    def _direction(self, scans: Iterable[int], axis: str) -> bool:
        """Whether a loop takes the last chunk first; its scans must agree."""
        shaped = {self._prefix + self._graph.nodes[node].path: self._demands.shaped[node] for node in scans}
        reverse = {path: each.operation.reverse for path, each in shaped.items()}
        if len(set(reverse.values())) > 1:
            raise PlanError(
                message(
                    f"scans forwards and backwards share the loop over {label(axis)} of `{dim_of(axis)}`",
                    *(
                        f"`{path}` runs {'from the end' if each else 'from the start'}"
                        for path, each in reverse.items()
                    ),
                    remedy=f"Except one of them: ops={{{next(iter(reverse))!r}: {{{dim_of(axis)!r}: None}}}}.",
                )
            )
        return any(reverse.values())

    def _wanted_outside(self, group: Group) -> set[Ref]:
        """The values that something outside a loop needs."""
        demands, inside = self._demands, group.nodes
        wanted = {demands.source(output) for _, output in self._graph.outputs}
        for index in demands.needed:
            if index not in inside:
                wanted |= {demands.source(operand) for operand in self._graph.nodes[index].operands}
        return wanted

    def _finish(self, index: int, frame: Frame, outputs: Mapping[int, Layout]) -> None:
        node = self._graph.nodes[index]
        assert isinstance(node, Apply)
        folds = self._demands.shaped[index].signature.fold_dims
        cuts = made_outside(self._demands.cuts[index], frame.opened, folds)
        operands = frame.states.pop(index)
        axes = spread(all_axes(cuts.values())) | frame.stages
        results, scatter = self._results(index, cuts, frame, outputs)
        frame.steps.append(
            Finish(index, operands, results, tuple(cuts.items()), axes, scatter, self._prefix + node.path)
        )

    def _pipeline(self, index: int, group: Group, frame: Frame) -> None:
        """A repetition whose turns are stages: the loop over chunks in which each hands its own on to the next."""
        node, axis, stages = self._graph.nodes[index], group.axis, self._demands.stages[index].axes
        assert isinstance(node, Loop)
        path = _pipeline_path(self._prefix + node.path, axis)
        inner = Frame(self._graph, frame.mesh, (*frame.opened, axis), frame, frozenset(stages))
        self._repeat(index, node, inner)
        handed = tuple(inner.home[Ref(index, carry)] for carry in range(node.carries))
        wanted = self._wanted_outside(group)
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

    # Repetitions

    def _repeat(self, index: int, node: Loop, frame: Frame) -> None:
        path, demands = self._prefix + node.path, self._demands
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
                wanted = body.wanted(Ref(position, 0), frame.opened)
                layouts[position] = wanted[0] if wanted else Layout.whole(len(home.cuts))
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
        inside = _Scheduler(body).run(layouts, carried, frame.opened, varying, frame.stages)
        inside, prologue = _hoisted(inside, node)
        results: list[int] = []
        for number in range(len(node.results)):
            layout = inside.slots[inside.outputs[number]].layout
            if number >= node.carries:
                layout = Layout((stage, *layout.cuts))
            results.append(frame.store(Ref(index, number), layout))
        length = node.length if stage is None else stage.block
        wiring = index, tuple(operands), tuple(results), inside, prologue
        frame.steps.append(Repeat(*wiring, length, node.carries, node.axes, path, stage, node.length))


def _pipeline_path(path: str, axis: str) -> str:
    return f"{path} by {label(axis)} of {dim_of(axis)}"


def _in_turn(home: Layout, reads: Sequence[Layout], opened: tuple[str, ...]) -> Layout:
    """The layout `home`, but cut in time as the body of a repetition reads it: each turn hands it one chunk."""
    for axis in opened:
        for position, cut in enumerate(reads[0].cuts if reads else ()):
            if cut is not None and axis in cut.axes:
                home = home.with_cut(position, cut)
    return home


def _state_slots(
    frame: Frame,
    shaped: Shaped,
    cuts: Cuts,
    axes: frozenset[str],
    without: str | None = None,
    varies: Sequence[bool] | None = None,
) -> tuple[int, ...]:
    """Slots of the leaves of a state that a loop carries; `without` the dimension of a scan, those of a total."""
    slots: list[int] = []
    for number, (leaf, names) in enumerate(zip(shaped.state, shaped.carrier, strict=True)):
        kept = [(name, size) for name, size in zip(names, leaf.shape, strict=True) if name != without]
        kind = TensorType.make((None,) * len(kept), [size for _, size in kept], leaf.dtype)
        layout = Layout(tuple(cuts.get(name) for name, _ in kept))
        alike = varies is not None and not varies[number]
        slots.append(frame.add(Slot(kind, layout, frozenset() if alike else axes)))
    return tuple(slots)


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
            prologue.append(step)
        else:
            steps.append(step)
    return replace(body, steps=tuple(steps)), tuple(prologue)
