"""Scans by an associative function, cut along their steps and along all that the function maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Input
from combinators.merging.extrema import EXTREMA
from combinators.monoids.dual import dual
from combinators.monoids.optional import optional
from tapestry_jax.lifting.control.inside import Inside, written
from tapestry_jax.lifting.control.kernel import OnBlocks, reached
from tapestry_jax.lifting.control.monoids import cells_of, known_monoid
from tapestry_jax.lifting.kernels.cells import Program
from tapestry_jax.lifting.kernels.scanned import Laid, Merge, MergeNumbers, Scanned, Select, StatesOf
from tapestry_jax.lifting.rules.named import apply
from tapestry_jax.lifting.trees.prefixes import NAME
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of


def scanned(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """One scan for the leaves that need the same leaves and carry the same dimensions; else what stands there."""
    found = _Written(walk, equation, [walk.value(atom) for atom in atoms]).run()
    if found is not None:
        return found
    told = equation.params["equations"]
    return walk.run(told.jaxpr, told.consts, atoms, as_written=True)


class _Written:
    """Writes a scan.

    Args:
      walk: that writes it.
      equation: of it.
      values: the leaves of its steps.
    """

    def __init__(self, walk: Walk, equation: Any, values: Sequence[int]) -> None:
        self._walk, self._equation, self._values = walk, equation, values
        self._axes: tuple[int, ...] = equation.params["axes"]
        self._body = equation.params["body"]

    def run(self) -> list[Atom] | None:
        """The prefixes; None where the function mixes steps."""
        inside = Inside(self._walk)
        named = [inside.new(self._walk.shape(value), f"x{at}") for at, value in enumerate(self._values)]
        over = [leaf[axis] for leaf, axis in zip(named, self._axes, strict=True)]
        inside.unite(tuple(over[:1] * len(over)), tuple(over))
        body = written(self._walk, self._body, NAME)
        found = inside.run(body, [*named, *named])
        for own, other in zip(named, found, strict=True):
            inside.unite(own, other)
        names, cut, told = inside.finish(named)
        scanned = {names[dim.find()] for dim in over if dim is not None}
        cut -= set(told)
        if len(scanned) != 1 or not scanned <= cut:
            return None
        (graph,) = inside.graphs(names)
        laid = [
            Laid(
                tuple(f"u{number}_{at}" if dim is None else names[dim.find()] for at, dim in enumerate(leaf)),
                tuple("one" if dim is None else "cut" if names[dim.find()] in cut else "whole" for dim in leaf),
            )
            for number, leaf in enumerate(named)
        ]
        (over_all,) = scanned
        results: dict[int, Atom] = {}
        for needed, wanted in _groups(graph, laid):
            inputs = (*needed, *(len(laid) + number for number in needed))
            program = OnBlocks(graph, tuple(sorted(cut)), inputs, needed)
            made = self._apply(program, cells_of(body, needed), laid, needed, wanted, over_all)
            results |= dict(zip(wanted, made, strict=True))
        return [results[number] for number in range(len(laid))]

    def _apply(
        self,
        program: OnBlocks,
        cells: Program | None,
        laid: Sequence[Laid],
        needed: tuple[int, ...],
        wanted: Sequence[int],
        over: str,
    ) -> list[Atom]:
        own = tuple(laid[number] for number in needed)
        shared = tuple(dict.fromkeys(dim for leaf in own for dim in leaf.of("cut")))
        places, is_reversed = tuple(needed.index(number) for number in wanted), bool(self._equation.params["reverse"])
        kinds = [self._walk.dtype(self._values[number]) for number in needed]
        if cells is None or any(leaf.of("whole") for leaf in own):
            (order, monoid), merge = ((), None), Merge(program, own)
        else:
            (order, monoid), merge = (
                known_monoid(cells, needed, len(laid), kinds),
                MergeNumbers(cells, needed, len(laid)),
            )
        is_known = monoid is not None
        if monoid is None:
            order, monoid = tuple(range(len(own))), optional(merge, name=NAME)
        axes = tuple((*shared, *own[at].of("whole")) for at in order)
        types = types_of(self._equation)
        listed = tuple(laid[number] for number in wanted)
        return apply(
            self._walk,
            NAME,
            StatesOf(own, shared, order, not is_known),
            [(self._values[number], laid[number].dims) for number in needed],
            [(types[number], laid[number].dims) for number in wanted],
            whole={dim for leaf in own for dim in (*leaf.of("whole"), *leaf.of("one"))},
            monoid=dual(monoid) if is_reversed and not monoid.commutative else monoid,
            over=over,
            reverse=is_reversed,
            carrier=axes if is_known else (shared, *axes),
            present=Select(listed, tuple(order.index(at) for at in places), not is_known),
            # At ties the slopes of JAX's own are those of its tree; where steps are cut the first has them.
            dense=()
            if monoid.native in EXTREMA
            else (Scanned(program, tuple(leaf.dims.index(over) for leaf in own), places, is_reversed),),
        )


def _groups(graph: Graph, laid: Sequence[Laid]) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """The leaves that some leaves need, and those, which carry the same dimensions that can be cut."""
    found: dict[tuple[tuple[int, ...], frozenset[str]], list[int]] = {}
    for number in range(len(laid)):
        needed = {number}
        while (more := needed | _read(graph, needed, len(laid))) != needed:
            needed = more
        found.setdefault((tuple(sorted(needed)), frozenset(laid[number].of("cut"))), []).append(number)
    yield from ((needed, wanted) for (needed, _), wanted in found.items())


def _read(graph: Graph, leaves: set[int], count: int) -> set[int]:
    """The leaves that the function reads for some leaves, of either side."""
    needed = reached(graph, [graph.outputs[number][1] for number in leaves])
    inputs = [index for index, node in enumerate(graph.nodes) if isinstance(node, Input)]
    return {at % count for at, index in enumerate(inputs) if index in needed}


TABLE = {NAME: scanned}
