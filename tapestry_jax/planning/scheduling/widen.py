"""Widening: operations of a loop's body compute some of their neighbours' indices too, and save an exchange each.

An operation whose result is read with an overlap computes the overlap itself, redundantly, as far as its own operands
can be read. Backwards through the body this moves every exchange to the values that the body starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Ref, Rename
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.geometry.layout import Cut, Layout, widened_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import in_time
from tapestry_jax.planning.scheduling.reads import Cuts, operand_layouts, overlapping_term


@dataclass(frozen=True)
class Widening:
    """What is widened in the body of a loop.

    Attributes:
      graph: the body.
      mesh: the shape of the mesh.
      placer: knows which dimensions have a halo.
      prefix: of the operations' paths.
      shaped: the needed operations, by node.
      cuts: of each of them; changed in place.
      wanted: for every axis of a value, the cuts that its consumers read it in.
      read: for every value the layouts in which operations with a halo read it.
    """

    graph: Graph
    mesh: MeshShape
    placer: Placer
    prefix: str
    shaped: Mapping[int, Shaped]
    cuts: dict[int, Cuts]
    wanted: dict[tuple[Ref, int], set[Cut]] = field(default_factory=dict[tuple[Ref, int], set[Cut]])
    read: dict[Ref, list[Layout]] = field(default_factory=dict[Ref, list[Layout]])

    def widen(self, inputs: Mapping[int, Layout]) -> dict[int, Layout]:
        """Widen the operations of the body, the last one first.

        Args:
          inputs: layouts of the body's inputs by position.

        Returns:
          For inputs that several consumers read with different overlaps, by position, the layout that serves all.

        Raises:
          PlanError: where a device would hold more than the whole of a dimension.
        """
        for index in reversed(range(len(self.graph.nodes))):
            node = self.graph.nodes[index]
            if isinstance(node, Rename):
                for axis in range(node.results[0].ndim):
                    self._want(node.operands[0], axis, self.wanted.get((Ref(index, 0), axis), set()))
            elif isinstance(node, Apply) and index in self.shaped:
                self._widen(index, node)
        places = self._inputs()
        held = {position: self._held(Ref(places[position], 0), layout) for position, layout in inputs.items()}
        return {position: layout for position, layout in held.items() if layout != inputs[position]}

    def taken(self) -> dict[Ref, Layout]:
        """For inputs of which loops in time read pieces with different overlaps the layout that serves all of them."""
        found = dict[Ref, Layout]()
        for place in self._inputs():
            ref = Ref(place, 0)
            several = [
                dict.fromkeys(cuts) for cuts in zip(*(layout.cuts for layout in self.read.get(ref, ())), strict=True)
            ]
            if any(len(cuts) > 1 and any(in_time(cut.axes) for cut in cuts if cut is not None) for cuts in several):
                sizes = self.graph.type_of(ref).shape
                found[ref] = Layout(tuple(_serving(cuts, size) for cuts, size in zip(several, sizes, strict=True)))
        return found

    def _inputs(self) -> list[int]:
        return [index for index, node in enumerate(self.graph.nodes) if isinstance(node, Input)]

    def _want(self, ref: Ref, axis: int, cuts: set[Cut]) -> None:
        self.wanted.setdefault((ref, axis), set()).update(cuts)

    def _widen(self, index: int, node: Apply) -> None:
        shaped, cuts = self.shaped[index], self.cuts[index]
        for dim in [dim for dim in cuts if self._has_halo(dim, node)]:
            before, after, wraps = self._reach(index, dim)
            if self._mirrors(index, dim):
                before = after = max(before, after)
            if self._can_widen(index, dim, wraps=wraps):
                self._check(node, dim, shaped.sizes[dim], before, after)
                cuts[dim] = widened_cut(cuts[dim], shaped.sizes[dim], before, after, wraps=wraps)
        operands = [operand for operand in shaped.signature.operands if operand.coordinate is None]
        for ref, operand, layout in zip(node.operands, operands, operand_layouts(shaped, cuts), strict=True):
            if any(self._has_halo(dim, node) for dim in cuts):
                self.read.setdefault(ref, []).append(layout)
            for number, (axis, cut) in enumerate(zip(operand.axes, layout.cuts, strict=True)):
                if cut is not None and any(dim in cuts and self._has_halo(dim, node) for dim in axis.names):
                    self._want(ref, number, {cut})

    def _has_halo(self, dim: str, node: Apply) -> bool:
        return self.placer.halo(node.bound[dim], self.prefix + node.path) is not None

    def _reach(self, index: int, dim: str) -> tuple[int, int, bool]:
        """How many further indices the consumers of all results need on either side, and whether around the ends."""
        shaped, own = self.shaped[index], self.cuts[index][dim]
        before = after = 0
        wraps = False
        for output, axes in enumerate(shaped.result_axes):
            for number, axis in enumerate(axes):
                if dim not in axis.names:
                    continue
                inner = 1
                for term in axis.terms[1:]:
                    inner *= shaped.sizes[term.name]
                held = Cut(own.axes, own.block * inner)
                for cut in self.wanted.get((Ref(index, output), number), ()):
                    low, high, around = _beyond(held, cut)
                    before, after = max(before, -(-low // inner)), max(after, -(-high // inner))
                    wraps = wraps or around
        return before, after, wraps

    def _mirrors(self, index: int, dim: str) -> bool:
        """Whether turns read cells mirrored at an end, which a turn has to have itself: on the other side of it."""
        axes = enumerate(self.shaped[index].result_axes)
        read = [(Ref(index, out), n) for out, listed in axes for n, axis in enumerate(listed) if dim in axis.names]
        return any(_is_mirrored(cut) for each in read for cut in self.wanted.get(each, ()))

    def _can_widen(self, index: int, dim: str, *, wraps: bool) -> bool:
        """Whether an operation may compute indices twice; around the ends only what reads around the ends as well."""
        shaped, cuts = self.shaped[index], self.cuts[index]
        if shaped.signature.role(dim) != "map" or shaped.operation.over == dim:
            return False
        if wraps and any(operand.coordinate == dim for operand in shaped.signature.operands):
            return False
        for operand, layout in self._operands(index):
            for axis, cut in zip(operand, layout.cuts, strict=True):
                if dim in axis.names and axis.is_window:
                    mode = None if cut is None or cut.window is None else cut.window.mode
                    if overlapping_term(axis, cuts) is None or (wraps and mode != "periodic"):
                        return False
        return True

    def _operands(self, index: int) -> Iterator[tuple[Any, Layout]]:
        shaped = self.shaped[index]
        operands = (operand.axes for operand in shaped.signature.operands if operand.coordinate is None)
        return zip(operands, operand_layouts(shaped, self.cuts[index]), strict=True)

    def _held(self, ref: Ref, layout: Layout) -> Layout:
        """The layout of an input that serves all its consumers with one exchange."""
        kind = self.graph.type_of(ref)
        for axis, cut in enumerate(layout.cuts):
            wanted = self.wanted.get((ref, axis), set())
            if cut is None or len(wanted) < 2:
                continue
            reaches = [_beyond(cut, other) for other in wanted]
            before, after = max(each[0] for each in reaches), max(each[1] for each in reaches)
            wide = widened_cut(cut, kind.shape[axis], before, after, wraps=any(each[2] for each in reaches))
            layout = layout.with_cut(axis, wide)
        return layout

    def _check(self, node: Apply, dim: str, size: int, before: int, after: int) -> None:
        if max(before, after) >= max(size, 1):
            name = node.bound[dim]
            raise PlanError(
                message(
                    f"the halo of `{name}` is wider than the tensor",
                    f"`{self.prefix}{node.path}` would compute {before} indices before and {after} behind each block",
                    f"`{name}` has {size} in all",
                    remedy="Give tp.halo a smaller depth.",
                )
            )


def _serving(cuts: Iterable[Cut | None], size: int) -> Cut | None:
    """One cut that holds what several read; the first one where they are of different blocks."""
    first, *others = sorted(cuts, key=str)
    if first is None or not others:
        return first
    plain = Cut(first.axes, first.block)
    reaches = [_beyond(plain, cut) for cut in (first, *others) if cut is not None]
    before, after = (max(each[side] for each in reaches) for side in (0, 1))
    if any(_is_mirrored(cut) for cut in cuts if cut is not None):
        before = after = max(before, after)
    return widened_cut(plain, size, before, after, wraps=any(each[2] for each in reaches))


def _is_mirrored(cut: Cut) -> bool:
    return cut.window is not None and cut.window.mode == "reflect" and bool(in_time(cut.axes))


def _beyond(held: Cut, cut: Cut) -> tuple[int, int, bool]:
    """How many cells a cut reads before and behind the blocks that are held, and whether around the ends.

    Blocks of other sizes drift apart from device to device: what is read in such blocks is exchanged where it is read.
    """
    if cut.axes != held.axes or cut.block != held.block or not cut.extent:
        return 0, 0, False
    before, after = max(0, -cut.low), max(0, cut.low + cut.extent - cut.block)
    around = cut.window is not None and (cut.window.wraps or cut.window.mode == "periodic")
    return before, after, around and before + after > 0
