"""How the operations of one graph are cut, and in which layouts they read and make values."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Ref, Rename, needed_nodes, unrenamed
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.entries.placement import Placement, Placer
from tapestry_jax.planning.entries.stage_rules import check_stages
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.hops import sends
from tapestry_jax.planning.geometry.layout import Cut, Layout, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.opening import outside_all, part_of, streams
from tapestry_jax.planning.geometry.time_axis import dim_of, in_time, label, ring_of, spread
from tapestry_jax.planning.scheduling.free import FreeDims
from tapestry_jax.planning.scheduling.reads import Cuts, all_axes, operand_layouts, result_layout
from tapestry_jax.planning.scheduling.regions import Item, arrange, levels
from tapestry_jax.planning.scheduling.widen import Widening


class Demands:
    """The cuts of all operations of a graph, and what follows from them for its values."""

    def __init__(self, graph: Graph, mesh: MeshShape, placer: Placer, prefix: str) -> None:
        self.graph, self.mesh, self.prefix = graph, mesh, prefix
        self._placer = placer
        self.needed = sorted(needed_nodes(graph))
        self._users: dict[Ref, list[tuple[int, int]]] = {}
        for index in self.needed:
            for position, operand in enumerate(graph.nodes[index].operands):
                self._users.setdefault(operand, []).append((index, position))
        self.shaped: dict[int, Shaped] = {}
        self.cuts: dict[int, Cuts] = {}
        self.bodies: dict[int, Demands] = {}
        self.held: dict[int, Layout] = {}
        self.taken: dict[Ref, Layout] = {}
        self.stages: dict[int, Cut] = {}
        for index in self.needed:
            node = graph.nodes[index]
            if isinstance(node, Apply):
                self.shaped[index] = graph.shaped(index)
                self.cuts[index] = self._place(index, node)
            elif isinstance(node, Loop):
                self.bodies[index] = Demands(node.body, mesh, placer, f"{prefix}{node.path}/")
                self._place_stages(index, node)

    def _place(self, index: int, node: Apply) -> Cuts:
        shaped = self.shaped[index]
        placed = self._placer.place(node, shaped, self.prefix + node.path)
        # Equal layers that are placed alike are cut once, whatever candidate places them so.
        key = "cuts", self.mesh.axes, tuple(placed.items())
        if self._placer.is_in_space and key in shaped.known:
            return dict(shaped.known[key])
        found = self._cut(node, shaped, placed)
        if self._placer.is_in_space:
            shaped.known[key] = found
        return dict(found)

    def _cut(self, node: Apply, shaped: Shaped, placed: Placement) -> Cuts:
        cuts = {dim: even_cut(shaped.sizes[dim], axes, self.mesh) for dim, axes in placed.items()}
        striped = self._placer.striped(node, shaped, self.prefix + node.path, placed)
        found = {dim: cut for dim, cut in cuts.items() if cut is not None}
        # What has one place on each device lies there in its own order.
        stripes = {dim for dim, cut in found.items() if dim in striped and cut.piece > 1}
        return {dim: replace(cut, striped=True) if dim in stripes else cut for dim, cut in found.items()}

    def _place_stages(self, index: int, node: Loop) -> None:
        """A repetition whose turns lie on a mesh axis is a pipeline: its devices are stages."""
        path = self.prefix + node.path
        loops = set(self._loops(index))
        flows = bool(loops) and not any(map(ring_of, loops))
        axes = self._placer.place_turns(node, path, None if flows else self.bodies[index].stopped(node))
        cut = even_cut(node.length, axes, self.mesh)
        if cut is not None:
            check_stages(node, path, cut, self.mesh, self.bodies[index].all_cuts())
            self.stages[index] = cut

    def all_cuts(self) -> Iterator[tuple[str, str, Cut]]:
        """Path, name and cut of every dimension that is cut, those of the repetitions inside too."""
        for index, cuts in self.cuts.items():
            node = self.graph.nodes[index]
            assert isinstance(node, Apply)
            yield from ((self.prefix + node.path, node.bound[dim], cut) for dim, cut in cuts.items())
        for index, body in self.bodies.items():
            node = self.graph.nodes[index]
            assert isinstance(node, Loop)
            if index in self.stages:
                yield self.prefix + node.path, str(node.over), self.stages[index]
            yield from body.all_cuts()

    def placed(self) -> tuple[Hashable, ...]:
        """How every operation is cut and every repetition staged, those inside of repetitions too."""
        cuts = tuple((index, tuple(own.items())) for index, own in self.cuts.items() if own)
        bodies = tuple((index, body.placed()) for index, body in self.bodies.items())
        return cuts, bodies, tuple(self.stages.items())

    def take_free(self, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]) -> None:
        """Let operations that need a cut axis whole take its mesh axes on free dimensions, loops first."""
        for index, body in self.bodies.items():
            body.take_free(self._stored_inside(index, inputs), {})
        known = self.graph, self.mesh, self._placer, self.prefix, self.shaped, self.cuts, self.wanted
        FreeDims(*known, inputs, outputs).take()

    def _stored_inside(self, index: int, inputs: Mapping[int, Layout]) -> dict[int, Layout]:
        """The layouts in which a loop's body finds what it slices, or captures, of the program's own inputs."""
        node, given = self.graph.nodes[index], dict[int, Layout]()
        assert isinstance(node, Loop)
        places = (at for at, each in enumerate(self.graph.nodes) if isinstance(each, Input))
        for position, at in enumerate(places):
            if position in inputs:
                given[at] = inputs[position]
        found: dict[int, Layout] = {}
        for position, ref in enumerate(node.operands[node.carries :], node.carries):
            layout, number = given.get(self.source(ref).node), position - node.carries
            if layout is not None and number < len(node.axes):
                axis, cuts = node.axes[number], layout.cuts
                layout = Layout(cuts[:axis] + cuts[axis + 1 :]) if cuts[axis] is None else None
            if layout is not None:
                found[position] = layout
        return found

    def widen(self, inputs: Mapping[int, Layout]) -> None:
        """Let the operations of a loop's body overlap where the plan gives their dimensions a halo."""
        widening = Widening(self.graph, self.mesh, self._placer, self.prefix, self.shaped, self.cuts)
        self.held, self.taken = widening.widen(inputs), widening.taken()

    # What consumers want

    def wanted(self, ref: Ref, opened: Iterable[str] = ()) -> list[Layout]:
        """The layouts from which the consumers of a value read it, in program order, outside all loops not opened."""
        shape = self.graph.type_of(ref).shape
        return [outside_all(layout, opened).stored(shape, self.mesh) for layout in self._all_reads(ref)]

    def carried(self, index: int, position: int, opened: Iterable[str]) -> Layout:
        """The layout of a carry of a repetition, outside all loops not opened: as its body reads it."""
        node = self.graph.nodes[index]
        return outside_all(self.reads(index, position)[0], opened).stored(node.results[position].shape, self.mesh)

    def _consumers(self, ref: Ref) -> Iterator[tuple[tuple[int, int], list[Layout]]]:
        """Node and operand of every consumer, those under another name too, and what it wants."""
        for index, position in self._users.get(ref, ()):
            if isinstance(self.graph.nodes[index], Rename):
                yield from self._consumers(Ref(index, 0))
            else:
                yield (index, position), self.reads(index, position)

    def reads(self, index: int, position: int) -> list[Layout]:
        """The layouts in which a node reads an operand: one, or what the body of a loop does with it."""
        node = self.graph.nodes[index]
        if isinstance(node, Apply):
            return [self.operand_layouts(index)[position]]
        if isinstance(node, Loop):
            body = self.bodies[index]
            inside = body._all_reads(Ref(position, 0))
            if not inside and position < node.carries:
                # Nothing reads it: it lies as what each turn puts in its place.
                inside = [body.made(body.graph.outputs[position][1])]
            slot = position - node.carries
            if 0 <= slot < len(node.axes):
                at = node.axes[slot]
                stage = self.stages.get(index)
                inside = [Layout((*layout.cuts[:at], stage, *layout.cuts[at:])) for layout in inside]
            return inside
        return []

    def axes_read(self, index: int, position: int) -> frozenset[str] | None:
        """The mesh axes over which a node wants an operand to vary; None where parts of it differ."""
        node = self.graph.nodes[index]
        if isinstance(node, Apply):
            return spread(all_axes(self.cuts[index].values()))
        body = self.bodies[index]
        found = {body.axes_read(*place) for place, _ in body._consumers(Ref(position, 0))}
        only = next(iter(found)) if len(found) == 1 else None
        return only | set(self.stages[index].axes) if only is not None and index in self.stages else only

    def operand_layouts(self, index: int) -> list[Layout]:
        """The layouts of all operands of an operation."""
        return operand_layouts(self.shaped[index], self.cuts[index])

    def wanted_outside(self, inside: Container[int]) -> set[Ref]:
        """The values that outputs, or operations that are not `inside`, need."""
        wanted = {self.source(output) for _, output in self.graph.outputs}
        for index in self.needed:
            if index not in inside:
                wanted |= {self.source(operand) for operand in self.graph.nodes[index].operands}
        return wanted

    # Where values are made

    def source(self, ref: Ref) -> Ref:
        """The value itself, whatever it has been renamed to."""
        return unrenamed(self.graph, ref)

    def made(self, ref: Ref) -> Layout:
        """The layout in which a value is made, loops included; inputs as their first consumer reads them."""
        ref = self.source(ref)
        node = self.graph.nodes[ref.node]
        if isinstance(node, Apply):
            shaped = self.shaped[ref.node]
            return result_layout(shaped.result_axes[ref.output], shaped.sizes, self.cuts[ref.node])
        if isinstance(node, Loop):
            body = self.bodies[ref.node]
            layout = body.made(body.graph.outputs[ref.output][1])
            return layout if ref.output < node.carries else Layout((self.stages.get(ref.node), *layout.cuts))
        consumers = self._all_reads(ref)
        return consumers[0] if consumers else Layout.whole(self.graph.type_of(ref).ndim)

    # Loops in time

    def arranged(self, opened: Iterable[str]) -> list[Item]:
        """All operations, those that share a loop together."""
        nodes = [index for index in self.needed if isinstance(self.graph.nodes[index], Apply | Loop)]
        known = set(opened)
        found = {axis for index in nodes for axis in self._loops(index)} - known
        order = self._placer.dims
        axes = sorted(found, key=lambda axis: (order.index(dim_of(axis)), "~" not in axis, axis))
        return arrange(nodes, axes, self.uses, self._edges, self.stages)

    def _loops(self, index: int) -> Iterator[str]:
        if index in self.cuts:
            yield from (axis for cut in self.cuts[index].values() for axis in in_time(cut.axes))
        else:
            body = self.bodies[index]
            # Whether all of a repetition can run in a loop is asked once, not for every operation that the loop cuts.
            axes = dict.fromkeys(axis for inner in body._own_nodes() for axis in body._loops(inner))
            yield from (axis for axis in axes if self.uses(index, axis))

    def _own_nodes(self) -> Iterator[int]:
        return (index for index in self.needed if index in self.cuts or index in self.bodies)

    def uses(self, index: int, axis: str) -> bool:
        """Whether a node runs inside a loop: an operation that it cuts, or a repetition all of which can run there."""
        if index in self.cuts:
            return any(axis in cut.axes for cut in self.cuts[index].values())
        loop = self.graph.nodes[index]
        assert isinstance(loop, Loop)
        body = self.bodies[index]
        return body._uses_inside(axis) and body._why_closed(axis, loop) is None

    def stopped(self, loop: Loop) -> tuple[str, ...]:
        """Of every loop in the body of a repetition, why its chunks do not flow through the turns."""
        axes = dict.fromkeys(axis for _, _, cut in self.all_cuts() for axis in in_time(cut.axes))
        reasons: list[str] = []
        for axis in axes:
            closed = self._why_closed(axis, loop)
            if ring_of(axis) is not None:
                closed = f"`{dim_of(axis)}` goes round a ring"
            elif closed is None:
                continue
            reasons.append(closed)
        return tuple(reasons)

    def _uses_inside(self, axis: str) -> bool:
        return any(self.uses(index, axis) for index in self._own_nodes())

    def _why_closed(self, axis: str, loop: Loop) -> str | None:
        """Why the body of a repetition does not pass chunks through; None where it does."""
        nodes, dim = list(self._own_nodes()), dim_of(axis)
        around = self._closed_around(axis, loop)
        if around is not None:
            # Chunks of the pieces that a ring brings: the ring is the outer loop, in here too.
            return f"the chunks of `{dim}` are parts of {label(around)}, which stays inside"
        paths = {index: f"`{self.prefix}{self.graph.nodes[index].path}`" for index in nodes}
        for index in nodes:
            if index in self.stages and self.uses(index, axis):
                # It opens the loop itself: its devices are in different turns.
                return f"{paths[index]} is a pipeline itself, with its own chunks of `{dim}`"
            body = self.bodies.get(index)
            if body is not None and not self.uses(index, axis) and any(axis in c.axes for _, _, c in body.all_cuts()):
                return f"{paths[index]} does not pass the chunks of `{dim}` through"
            if self._folds(index, axis):
                return f"{paths[index]} combines the chunks of `{dim}`"
        late = [index for index, level in levels(nodes, axis, self.uses, self._edges).items() if level]
        if late:
            return f"{paths[late[0]]} needs all of `{dim}` at once"
        inputs = [Ref(i, 0) for i, node in enumerate(self.graph.nodes) if isinstance(node, Input)]
        made = [self.made(ref) for _, ref in self.graph.outputs]
        for position, ref in enumerate(inputs):
            parts = {part_of(layout, axis) for layout in self._all_reads(ref)}
            after = {part_of(made[position], axis)} if position < loop.carries else parts
            if len(parts) > 1 or not parts <= after:
                return f"`{self.graph.type_of(ref)}` is not read everywhere in chunks of `{dim}`"
        for (_, ref), layout in zip(self.graph.outputs, made, strict=True):
            if not streams(layout, axis):
                return f"`{self.graph.type_of(ref)}` is handed on without chunks of `{dim}`"
        return None

    def _closed_around(self, axis: str, loop: Loop) -> str | None:
        """A loop of the same dimension that stands around `axis` and does not leave the body of a repetition."""
        cuts = (cut.axes for _, _, cut in self.all_cuts() if axis in cut.axes)
        outer = dict.fromkeys(before for axes in cuts for before in in_time(axes[: axes.index(axis)]))
        return next((before for before in outer if self._why_closed(before, loop) is not None), None)

    def _all_reads(self, ref: Ref) -> list[Layout]:
        found = sorted(self._consumers(ref), key=lambda demand: demand[0])
        return [layout for _, layouts in found for layout in layouts]

    def _folds(self, index: int, axis: str) -> bool:
        if index not in self.cuts:
            return False
        shaped = self.shaped[index]
        closed = {*shaped.signature.fold_dims, shaped.operation.over}
        return any(axis in cut.axes for dim, cut in self.cuts[index].items() if dim in closed)

    def _edges(self, index: int, axis: str) -> Iterator[tuple[int, bool]]:
        node = self.graph.nodes[index]
        # Asked once for all operands: the answer for a repetition takes time in proportion to its body.
        is_inside: bool | None = None
        for position, operand in enumerate(node.operands):
            ref = self.source(operand)
            made = self.made(ref)
            read = {part_of(layout, axis) for layout in self.reads(index, position)}
            # What a pipeline takes in and gives is whole outside: its devices are in different turns.
            staged = ref.node in self.stages or index in self.stages
            flows = not staged and streams(made, axis)
            flows = flows and all(part == part_of(made, axis) or self._serves(ref, made, part) for part in read)
            if flows and is_inside is None:
                is_inside = self.uses(index, axis)
            yield ref.node, flows and bool(is_inside)

    def _serves(self, ref: Ref, made: Layout, read: tuple[Cut | None, ...]) -> bool:
        """Whether a turn makes all that is read of a value in it, since it computes cells of other turns as well."""
        sizes = self.graph.type_of(ref).shape
        pairs = [(n, *each) for n, each in enumerate(zip(made.cuts, read, sizes, strict=True)) if each[0] != each[1]]
        return all(
            have is not None
            and wanted is not None
            and have.window is not None
            and have.axes == wanted.axes
            and not sends(Overlap(axis, have, wanted, size), self.mesh)
            for axis, have, wanted, size in pairs
        )
