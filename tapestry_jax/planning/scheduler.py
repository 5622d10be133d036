"""From a graph and placements to a schedule: pure data in, pure data out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from combinators.graph import Apply, Graph, Input, Loop, Ref, Rename, needed_nodes
from combinators.shaped import Shaped
from tapestry_jax.planning.changes import Cast, layout_changes
from tapestry_jax.planning.free import FreeDims
from tapestry_jax.planning.layout import Layout, even_cut
from tapestry_jax.planning.mesh_shape import MeshShape
from tapestry_jax.planning.placement import Placer
from tapestry_jax.planning.reads import Cuts, operand_layouts, result_layout
from tapestry_jax.planning.schedule import Convert, Repeat, Run, Scatter, Schedule, Slot, Step
from tapestry_jax.planning.widen import Widening


def schedule_graph(
    graph: Graph,
    mesh: MeshShape,
    placer: Placer,
    inputs: Mapping[int, Layout],
    outputs: Mapping[int, Layout],
    prefix: str = "",
) -> Schedule:
    """Write a graph out as the steps of one device.

    Args:
      graph: the program.
      mesh: the shape of the mesh.
      placer: says where the dimensions of each operation go.
      inputs: layouts of inputs by position; the others come as their first user wants them.
      outputs: layouts of outputs by position; the others leave as they are produced.
      prefix: of the operations' paths, inside a loop.

    Raises:
      PlanError: where a placement cannot hold.
    """
    scheduler = _Scheduler(graph, mesh, placer, prefix)
    scheduler.take_free(inputs, outputs)
    return scheduler.run(inputs, outputs)


class _Scheduler:
    """One pass over the nodes; values get slots, conversions are made once and shared."""

    def __init__(self, graph: Graph, mesh: MeshShape, placer: Placer, prefix: str) -> None:
        self._graph, self._mesh, self._placer, self._prefix = graph, mesh, placer, prefix
        self._needed = needed_nodes(graph)
        self._shaped: dict[int, Shaped] = {}
        self._cuts: dict[int, Cuts] = {}
        self._bodies: dict[int, _Scheduler] = {}
        for index in sorted(self._needed):
            node = graph.nodes[index]
            if isinstance(node, Apply):
                self._shaped[index] = graph.shaped(index)
                self._cuts[index] = self._place(index, node)
            elif isinstance(node, Loop):
                self._bodies[index] = _Scheduler(node.body, mesh, placer, f"{prefix}{node.path}/")
        self._slots: list[Slot] = []
        self._steps: list[Step] = []
        self._home: dict[Ref, int] = {}
        self._converted: dict[tuple[int, Layout, frozenset[str]], int] = {}
        self._held: dict[int, Layout] = {}

    def _place(self, index: int, node: Apply) -> Cuts:
        shaped = self._shaped[index]
        placed = self._placer.place(node, shaped, self._prefix + node.path)
        cuts = {dim: even_cut(shaped.sizes[dim], axes, self._mesh) for dim, axes in placed.items()}
        return {dim: cut for dim, cut in cuts.items() if cut is not None}

    def take_free(self, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]) -> None:
        """Let operations that need a cut axis whole take its mesh axes on free dimensions, loops first."""
        for body in self._bodies.values():
            body.take_free({}, {})
        known = self._graph, self._mesh, self._placer, self._prefix, self._shaped, self._cuts, self.wanted
        FreeDims(*known, inputs, outputs).take()

    def widen(self, inputs: Mapping[int, Layout]) -> None:
        """Let the operations of a loop's body overlap where the plan gives their dimensions a halo."""
        widening = Widening(self._graph, self._mesh, self._placer, self._prefix, self._shaped, self._cuts)
        self._held = widening.widen(inputs)

    # What consumers want

    def wanted(self, ref: Ref) -> list[Layout]:
        """The layouts from which the consumers of a value read it, in the order of the program."""
        found = sorted(self._demands(ref), key=lambda demand: demand[0])
        shape = self._graph.type_of(ref).shape
        return [layout.stored(shape, self._mesh) for _, layouts in found for layout in layouts]

    def _demands(self, ref: Ref) -> Iterator[tuple[tuple[int, int], list[Layout]]]:
        """Node and operand of every consumer, those under another name too, and what it wants."""
        for index in sorted(self._needed):
            node = self._graph.nodes[index]
            for position, operand in enumerate(node.operands):
                if operand != ref:
                    continue
                if isinstance(node, Rename):
                    yield from self._demands(Ref(index, 0))
                else:
                    yield (index, position), self._wanted_by(index, position)

    def _wanted_by(self, index: int, position: int) -> list[Layout]:
        node = self._graph.nodes[index]
        if isinstance(node, Apply):
            return [operand_layouts(self._shaped[index], self._cuts[index])[position]]
        if isinstance(node, Loop):
            inside = self._bodies[index].wanted(Ref(position, 0))
            slot = position - node.carries
            if 0 <= slot < len(node.axes):
                at = node.axes[slot]
                inside = [Layout((*layout.cuts[:at], None, *layout.cuts[at:])) for layout in inside]
            return inside
        return []

    # The pass

    def run(self, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]) -> Schedule:
        given: list[int] = []
        for index, node in enumerate(self._graph.nodes):
            match node:
                case Input():
                    first = self.wanted(Ref(index, 0))
                    default = first[0] if first else Layout.whole(node.results[0].ndim)
                    given.append(self._store(Ref(index, 0), inputs.get(len(given), default)))
                    held = self._held.get(len(given) - 1)
                    if held is not None:
                        path = f"{self._prefix}{node.name}"
                        self._home[Ref(index, 0)] = self._convert(Ref(index, 0), held, held.axes, path)
                case Rename():
                    if index in self._needed:
                        self._home[Ref(index, 0)] = self._home[node.operands[0]]
                case Apply():
                    if index in self._needed:
                        self._run(index, node, outputs)
                case Loop():
                    if index in self._needed:
                        self._repeat(index, node)
        results: list[int] = []
        for position, (name, ref) in enumerate(self._graph.outputs):
            home = self._slots[self._home[ref]]
            layout = outputs.get(position, home.layout.stored(home.type.shape, self._mesh))
            results.append(self._convert(ref, layout, layout.axes, f"{self._prefix}output {name}"))
        return Schedule(self._graph, self._mesh, tuple(self._slots), tuple(given), tuple(self._steps), tuple(results))

    def _store(self, ref: Ref, layout: Layout) -> int:
        self._slots.append(Slot(self._graph.type_of(ref), layout, layout.axes))
        self._home[ref] = len(self._slots) - 1
        return self._home[ref]

    def _convert(self, ref: Ref, layout: Layout, varying: frozenset[str], path: str) -> int:
        source = self._home[ref]
        slot = self._slots[source]
        if slot.layout == layout and slot.varying == varying:
            return source
        key = (source, layout, varying)
        if key not in self._converted:
            changes = layout_changes(slot.type.shape, slot.layout, layout, varying, self._mesh)
            self._slots.append(Slot(slot.type, layout, varying))
            self._converted[key] = len(self._slots) - 1
            self._steps.append(Convert(source, self._converted[key], changes, path))
        return self._converted[key]

    def _run(self, index: int, node: Apply, outputs: Mapping[int, Layout]) -> None:
        shaped, cuts, path = self._shaped[index], self._cuts[index], self._prefix + node.path
        axes = frozenset(axis for cut in cuts.values() for axis in cut.axes)
        operands = tuple(
            self._convert(ref, layout, axes, path)
            for ref, layout in zip(node.operands, operand_layouts(shaped, cuts), strict=True)
        )
        natural = [result_layout(result, shaped.sizes, cuts) for result in shaped.result_axes]
        scatter = self._scatter(index, shaped, cuts, natural[0], outputs) if len(natural) == 1 else None
        if scatter is not None:
            natural = [natural[0].with_cut(scatter.axis, scatter.cut)]
        results = tuple(self._store(Ref(index, number), layout) for number, layout in enumerate(natural))
        self._steps.append(Run(index, operands, results, tuple(cuts.items()), axes, scatter, path))

    def _scatter(
        self, index: int, shaped: Shaped, cuts: Cuts, natural: Layout, outputs: Mapping[int, Layout]
    ) -> Scatter | None:
        """Where every consumer wants the sum cut over the very axes that it is folded over."""
        operation = shaped.operation
        folded = tuple(axis for dim in shaped.signature.fold_dims if dim in cuts for axis in cuts[dim].axes)
        plain = operation.monoid is not None and operation.monoid.native == "sum"
        # Results are presented cell by cell, so what is scattered may be presented after it.
        if not folded or not plain or len(shaped.state) != 1 or shaped.carrier != shaped.result_names:
            return None
        ref = Ref(index, 0)
        demands = self.wanted(ref)
        for position, (_, output) in enumerate(self._graph.outputs):
            if self._unrenamed(output) == ref:
                demands.append(outputs.get(position, natural))
        if not demands:
            return None
        first = demands[0]
        if any(demand != first for demand in demands):
            return None
        gained = [axis for axis, (a, b) in enumerate(zip(natural.cuts, first.cuts, strict=True)) if a != b]
        if len(gained) != 1 or natural.cuts[gained[0]] is not None:
            return None
        cut = first.cuts[gained[0]]
        return Scatter(gained[0], cut) if cut is not None and cut.axes == folded else None

    def _unrenamed(self, ref: Ref) -> Ref:
        node = self._graph.nodes[ref.node]
        return self._unrenamed(node.operands[0]) if isinstance(node, Rename) else ref

    def _repeat(self, index: int, node: Loop) -> None:
        path = self._prefix + node.path
        body = self._bodies[index]
        layouts: dict[int, Layout] = {}
        operands: list[int] = []
        for position, ref in enumerate(node.operands):
            home = self._slots[self._home[ref]].layout
            if position < node.carries:
                wanted = body.wanted(Ref(position, 0))
                layouts[position] = wanted[0] if wanted else Layout.whole(len(home.cuts))
                operands.append(self._convert(ref, layouts[position], layouts[position].axes, path))
                continue
            slot = position - node.carries
            at = node.axes[slot] if slot < len(node.axes) else None
            if at is not None:
                # The loop runs over all slices on every device.
                home = home.with_cut(at, None)
            operands.append(self._convert(ref, home, home.axes, path))
            layouts[position] = home if at is None else Layout(home.cuts[:at] + home.cuts[at + 1 :])
        body.widen(layouts)
        inside = body.run(layouts, {carry: layouts[carry] for carry in range(node.carries)})
        inside, prologue = _hoisted(inside, node)
        results: list[int] = []
        for number in range(len(node.results)):
            layout = inside.slots[inside.outputs[number]].layout
            if number >= node.carries:
                layout = Layout((None, *layout.cuts))
            results.append(self._store(Ref(index, number), layout))
        self._steps.append(
            Repeat(index, tuple(operands), tuple(results), inside, prologue, node.length, node.carries, node.axes, path)
        )


def _hoisted(body: Schedule, node: Loop) -> tuple[Schedule, tuple[Convert, ...]]:
    """Take what depends on constants alone, and casts of stacked operands, out of the loop: once, not every turn."""
    constant = set(body.inputs[node.carries + len(node.axes) :])
    stacked = set(body.inputs[node.carries : node.carries + len(node.axes)])
    prologue: list[Convert] = []
    steps: list[Step] = []
    for step in body.steps:
        if isinstance(step, Convert) and step.source in constant:
            constant.add(step.result)
            prologue.append(step)
        elif isinstance(step, Convert) and step.source in stacked and all(isinstance(c, Cast) for c in step.changes):
            stacked.add(step.result)
            prologue.append(step)
        else:
            steps.append(step)
    return replace(body, steps=tuple(steps)), tuple(prologue)
