"""Free dimensions: an operation takes mesh axes, with which its operand comes, on a dimension that nothing places.

Fed by a tensor that is cut along `x`, `"y [x] -> y x"` would gather it and run everywhere alike. With `y` free the same
mesh axes cut `y` instead: the gather becomes an all-to-all, and every device transforms its own rows. And a parameter
that is stored in pieces, and cast to floats of fewer bits by a map, is cast where it lies, and gathered afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Ref, unrenamed
from combinators.index_space.operand import Operand
from combinators.operations.boxes import settles
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.entries.placement import Placer, why_whole
from tapestry_jax.planning.geometry.changes import Deal, Exchange, Gather, Overlap, changed_shape
from tapestry_jax.planning.geometry.hops import sent_cells
from tapestry_jax.planning.geometry.layout import Cut, Layout, dense_bytes, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.opening import outside_all
from tapestry_jax.planning.geometry.time_axis import in_time
from tapestry_jax.planning.geometry.way import layout_changes
from tapestry_jax.planning.scheduling.reads import Cuts, operand_layouts, result_layout


@dataclass(frozen=True)
class Taken:
    """A dimension that an operation takes mesh axes on, and which whole axis gives them.

    Attributes:
      node: of the operation.
      dim: its dimension.
      cut: the mesh axes and the block.
      stored: whether these are those along which its operand is stored, and no whole axis gives them.
    """

    node: int
    dim: str
    cut: Cut
    stored: bool = False


@dataclass(frozen=True)
class FreeDims:
    """Decides which operations of a graph take mesh axes on free dimensions.

    Attributes:
      graph: the program.
      mesh: the shape of the mesh.
      placer: knows the entries of the plan.
      prefix: of the operations' paths, inside a loop.
      shaped: the needed operations, by node.
      cuts: of each of them; changed in place.
      wanted: the layouts in which the consumers of a value read it, as `cuts` stand.
      inputs: layouts of inputs by position, where they are given.
      outputs: layouts of outputs by position, where they are given.
    """

    graph: Graph
    mesh: MeshShape
    placer: Placer
    prefix: str
    shaped: Mapping[int, Shaped]
    cuts: dict[int, Cuts]
    wanted: Callable[[Ref], list[Layout]]
    inputs: Mapping[int, Layout]
    outputs: Mapping[int, Layout]

    @cached_property
    def _positions(self) -> dict[int, int]:
        """The position of every input node among the inputs."""
        inputs = [index for index, node in enumerate(self.graph.nodes) if isinstance(node, Input)]
        return {index: position for position, index in enumerate(inputs)}

    def take(self) -> None:
        """Let every operation that can take a free dimension do so, then undo what does not pay.

        Operations in a row pay together: the first leaves its result where the second, by its own free dimension, reads
        it. So all begin with theirs, and lose it as long as one moves more bytes with it than without.
        """
        taken = [found for index in sorted(self.shaped) if (found := self._first(index)) is not None]
        while taken:
            kept = [each for each in taken if self._pays(each) or self._undo(each)]
            if len(kept) == len(taken):
                return
            taken = kept

    def _first(self, index: int) -> Taken | None:
        """Put the mesh axes of the first whole axis that has some on the best free dimension."""
        cuts = self.cuts[index]
        used = {axis for cut in cuts.values() for axis in cut.axes}
        for axes, _ in self._given_up(index):
            if used & set(axes) or in_time(used):
                continue
            dims = self._free_dims(index, axes)
            if dims:
                return self._taken(index, dims[0], axes)
        if (found := self._stored(index)) is not None and used.isdisjoint(found[1]) and not in_time(used):
            return self._taken(index, *found, stored=True)
        return None

    def _taken(self, index: int, dim: str, axes: tuple[str, ...], *, stored: bool = False) -> Taken:
        cut = even_cut(self.shaped[index].sizes[dim], axes, self.mesh)
        assert cut is not None
        self.cuts[index][dim] = cut
        return Taken(index, dim, cut, stored)

    def _stored(self, index: int) -> tuple[str, tuple[str, ...]] | None:
        """A free dimension of a map along which its operand, an input, is stored in pieces, and on which mesh axes.

        Nobody has asked for that cut, so that nothing may be refused for it: the map's program says that it is right.
        """
        arrays = list(self._arrays(index))
        if self.shaped[index].operation.monoid is not None or len(arrays) != 1:
            return None
        ((ref, operand),) = arrays
        source = unrenamed(self.graph, ref)
        home = self._settled(source) if isinstance(self.graph.nodes[source.node], Input) else None
        for axis, cut in zip(operand.axes, () if home is None else home.cuts, strict=home is not None):
            if cut is not None and not in_time(cut.axes) and axis.name in self._free_dims(index, cut.axes):
                return (str(axis.name), cut.axes) if self._settles(index, ref, str(axis.name), cut) else None
        return None

    def _settles(self, index: int, ref: Ref, dim: str, cut: Cut) -> bool:
        shaped = self.shaped[index]
        return settles(shaped, [self.graph.type_of(ref).struct], {**shaped.sizes, dim: cut.block})

    def _given_up(self, index: int) -> Iterator[tuple[tuple[str, ...], Ref]]:
        """Mesh axes of the axes that the operation sees whole, as the plan places them or as they come, and of what."""
        path = self.prefix + self.graph.nodes[index].path
        for ref, operand in self._arrays(index):
            names = self.graph.type_of(ref).names
            for name, axis, position in zip(names, operand.axes, range(len(names)), strict=True):
                if axis.whole_name is None:
                    continue
                if name is not None and not self.placer.is_free(name, path):
                    axes = self.mesh.real(self.placer.mesh_axes(name, path))
                else:
                    cut = self._home(ref).cuts[position]
                    axes = () if cut is None else cut.axes
                if axes and not in_time(axes):
                    yield axes, ref

    def _free_dims(self, index: int, axes: tuple[str, ...]) -> list[str]:
        """Map dimensions that no entry names and that can be cut, the best first."""
        shaped, node = self.shaped[index], self.graph.nodes[index]
        assert isinstance(node, Apply)
        dims = [
            dim
            for dim, name in node.names
            if shaped.signature.role(dim) == "map"
            and dim not in self.cuts[index]
            and shaped.sizes[dim] > 1
            and self.placer.is_free(name, self.prefix + node.path)
            and why_whole(shaped, dim) is None
        ]
        count = self.mesh.size(axes)
        there = {
            axis.name
            for _, home, operand in self._operands(index)
            for axis, cut in zip(operand.axes, home.cuts, strict=True)
            if cut is not None and cut.axes == axes
        }

        def rank(dim: str) -> tuple[bool, bool, int]:
            size = shaped.sizes[dim]
            return dim not in there, size % count != 0, -size

        return sorted(dims, key=rank)

    def _pays(self, taken: Taken) -> bool:
        """Whether the operation moves no more bytes with its free dimension than without; fewer, of what is stored.

        What no one holds cut yet, an input without a layout, is taken to lie as the plan names it; keeping it whole on
        every device would move nothing as well, so there the result must not be gathered afterwards either.
        """
        cuts = self.cuts[taken.node]
        reads, leaves, gathers = self._moved(taken.node)
        del cuts[taken.dim]
        reads_without, leaves_without, gathers_without = self._moved(taken.node)
        cuts[taken.dim] = taken.cut
        if taken.stored:
            return reads + leaves < reads_without + leaves_without
        givers = [ref for axes, ref in self._given_up(taken.node) if axes == taken.cut.axes]
        if gathers > gathers_without and all(self._settled(unrenamed(self.graph, ref)) is None for ref in givers):
            return False
        return reads + leaves <= reads_without + leaves_without

    def _undo(self, taken: Taken) -> bool:
        del self.cuts[taken.node][taken.dim]
        return False

    def _moved(self, index: int) -> tuple[int, int, int]:
        """Bytes moved to read the operands, bytes to hand on the results, and how many of these are gathers."""
        shaped, cuts = self.shaped[index], self.cuts[index]
        reads = sum(
            sum(self._sent(ref, home, layout))
            for (ref, home, _), layout in zip(self._operands(index), operand_layouts(shaped, cuts), strict=True)
        )
        leaves = gathers = 0
        for number, axes in enumerate(shaped.result_axes):
            ref, home = Ref(index, number), result_layout(axes, shaped.sizes, cuts)
            for layout in dict.fromkeys([*self.wanted(ref), *self._wanted_outside(ref)]):
                exchanged, gathered = self._sent(ref, home, layout)
                leaves += exchanged + gathered
                gathers += gathered > 0
        return reads, leaves, gathers

    def _sent(self, ref: Ref, source: Layout, target: Layout) -> tuple[int, int]:
        """Bytes that a change of layout exchanges and gathers on one device."""
        kind = self.graph.type_of(ref)
        shape, exchanged, gathered = source.local_shape(kind.shape), 0, 0
        for change in layout_changes(kind.shape, source, target, target.axes, self.mesh):
            if isinstance(change, Gather):
                gathered += dense_bytes(math.prod(shape) * self.mesh.size(change.axes), kind.dtype)
            if isinstance(change, Deal):
                exchanged += dense_bytes(math.prod(shape), kind.dtype)
            if isinstance(change, Exchange):
                others = math.prod(size for axis, size in enumerate(shape) if axis != change.target)
                exchanged += dense_bytes(others * change.cut.block * self.mesh.size(change.cut.axes), kind.dtype)
            if isinstance(change, Overlap):
                others = math.prod(size for axis, size in enumerate(shape) if axis != change.axis)
                exchanged += dense_bytes(others * sent_cells(change, self.mesh), kind.dtype)
            shape = changed_shape(shape, change, self.mesh)
        return exchanged, gathered

    def _wanted_outside(self, ref: Ref) -> Iterator[Layout]:
        for position, (_, output) in enumerate(self.graph.outputs):
            if position in self.outputs and unrenamed(self.graph, output) == ref:
                yield self.outputs[position]

    def _operands(self, index: int) -> Iterator[tuple[Ref, Layout, Operand]]:
        """Every array operand: the value, the layout it comes in, and how the signature reads it."""
        for ref, operand in self._arrays(index):
            yield ref, self._home(ref), operand

    def _arrays(self, index: int) -> Iterator[tuple[Ref, Operand]]:
        arrays = (operand for operand in self.shaped[index].signature.operands if operand.coordinate is None)
        return zip(self.graph.nodes[index].operands, arrays, strict=True)

    def _home(self, ref: Ref) -> Layout:
        home = self._settled(unrenamed(self.graph, ref))
        return self._as_named(ref) if home is None else home

    def _settled(self, ref: Ref) -> Layout | None:
        """The layout of a value; None where whoever reads it first decides."""
        node = self.graph.nodes[ref.node]
        if isinstance(node, Apply):
            shaped = self.shaped[ref.node]
            # A value that a loop in time makes is put together before anybody needs all of it.
            return outside_all(result_layout(shaped.result_axes[ref.output], shaped.sizes, self.cuts[ref.node]), ())
        if isinstance(node, Input):
            return self.inputs.get(self._positions[ref.node])
        assert isinstance(node, Loop)
        return self._as_named(ref)

    def _as_named(self, ref: Ref) -> Layout:
        """The layout that the plan's general entries give to the names of a tensor."""
        kind = self.graph.type_of(ref)
        layout = Layout.whole(kind.ndim)
        for position, (name, size) in enumerate(zip(kind.names, kind.shape, strict=True)):
            axes = () if name is None else self.mesh.real(self.placer.mesh_axes(name, ""))
            if axes and not set(axes) & layout.axes:
                layout = layout.with_cut(position, even_cut(size, axes, self.mesh))
        return layout
