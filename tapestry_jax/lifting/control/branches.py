"""Loops until a condition holds, and choices: one operation each, cut along what all of their programs map."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Input
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.operations.operation import Operation
from tapestry_jax.lifting.assign import Named
from tapestry_jax.lifting.control.inside import Inside, entered, written
from tapestry_jax.lifting.control.kernel import Choice, OnBlocks, Until, reached
from tapestry_jax.lifting.control.until import looped
from tapestry_jax.lifting.dims import Dim
from tapestry_jax.lifting.rules.inlined import chosen
from tapestry_jax.lifting.rules.unknown import check
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, coordinates, signature, types_of


@dataclass(frozen=True)
class Part:
    """The results of a loop or choice that carry the same dimensions, and what they need.

    Attributes:
      kernel: made of what is opaque, and the dimensions whose coordinates it takes.
      programs: that it runs.
      operands: the positions of those that it needs.
    """

    kernel: Callable[[tuple[str, str] | None, tuple[str, ...]], Any]
    programs: Sequence[OnBlocks]
    operands: list[int]


Parts = Callable[[list[Graph], tuple[str, ...], list[int]], Part]
"""The programs, what can be cut of them, and some results, to what computes these alone."""


def choice(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """One of several programs by a number: what each of them maps is mapped; a number that is known leaves one."""
    if not isinstance(atoms[0], int):
        return chosen(walk, equation, atoms)
    inside, values, named = entered(walk, atoms)
    outs: list[Named] = []
    for at, branch in enumerate(equation.params["branches"]):
        found = inside.run(written(walk, branch, f"branch_{at}"), named[1:])
        for own, other in zip(outs, found, strict=False):
            inside.unite(own, other)
        outs = outs or found

    def part(graphs: list[Graph], cut: tuple[str, ...], wanted: list[int]) -> Part:
        inputs = tuple(sorted(set[int]().union(*(_inputs(graph, wanted) for graph in graphs))))
        branches = tuple(OnBlocks(graph, cut, inputs, tuple(wanted)) for graph in graphs)
        return Part(lambda opaque, told: Choice(opaque, told, branches), branches, [0, *(at + 1 for at in inputs)])

    return Wrote(walk, equation, values, named, outs).run(inside, part)


def until(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A program that is repeated while a condition holds: what both map is mapped, so what is asked for is whole.

    Under `jax.vmap` the condition has the batch, and each cell of it stops by itself: along that it can be cut.
    """
    params, (inside, values, named) = equation.params, entered(walk, atoms)
    asked, fixed = int(params["cond_nconsts"]), int(params["body_nconsts"])
    carries = named[asked + fixed :]
    (holds,) = inside.run(written(walk, params["cond_jaxpr"], "condition"), [*named[:asked], *carries])
    for own in carries:
        inside.unite(holds, own[: len(holds)])
    outs = inside.run(written(walk, params["body_jaxpr"], "body"), named[asked:])
    for own, other in zip(carries, outs, strict=True):
        inside.unite(own, other)

    def part(graphs: list[Graph], cut: tuple[str, ...], wanted: list[int]) -> Part:
        condition, body = graphs
        of_condition = _inputs(condition, [0])
        kept = {*wanted, *(at - asked for at in of_condition if at >= asked)}
        while (more := kept | {at - fixed for at in _inputs(body, kept) if at >= fixed}) != kept:
            kept = more
        carried = sorted(kept)
        first = [at for at in of_condition if at < asked]
        second = [at for at in _inputs(body, carried) if at < fixed]
        told = (
            OnBlocks(condition, cut, (*first, *(asked + at for at in carried)), (0,)),
            OnBlocks(body, cut, (*second, *(fixed + at for at in carried)), tuple(carried)),
            (len(first), len(second)),
            tuple(carried.index(at) for at in wanted),
            len(holds),
        )
        operands = [*first, *(asked + at for at in second), *(asked + fixed + at for at in carried)]
        return Part(lambda opaque, at: Until(opaque, at, *told), told[:2], operands)

    return Wrote(walk, equation, values, named, carries).run(inside, part) or looped(walk, equation, atoms)


def _inputs(graph: Graph, outputs: Iterable[int]) -> list[int]:
    """The inputs that some outputs need, by position."""
    needed = reached(graph, [graph.outputs[at][1] for at in outputs])
    inputs = [index for index, node in enumerate(graph.nodes) if isinstance(node, Input)]
    return [at for at, index in enumerate(inputs) if index in needed]


@dataclass(frozen=True)
class Wrote:
    """A loop or choice as operations, one for the results that carry the same dimensions.

    Attributes:
      walk: that writes it.
      equation: of it.
      values: operands.
      named: their dimensions.
      outs: those of the results.
    """

    walk: Walk
    equation: Any
    values: Sequence[int]
    named: Sequence[Named]
    outs: Sequence[Named]

    def run(self, inside: Inside, parts: Parts) -> list[Atom] | None:
        """The results; None where nothing of them can be cut."""
        if self.equation.effects:
            check(self.equation, self.walk.place)
        names, cut, told = inside.finish([*self.named, *self.outs])
        if not any(self._cut(named, names, cut) for named in self.outs):
            return None
        graphs, groups = inside.graphs(names), dict[frozenset[str], list[int]]()
        for at, named in enumerate(self.outs):
            groups.setdefault(self._cut(named, names, cut), []).append(at)
        results: dict[int, Atom] = {}
        for dims, wanted in groups.items():
            part = parts(graphs, tuple(sorted(dims)), wanted)
            unknown = next(filter(None, (program.unknown() for program in part.programs)), None)
            opaque = self._opaque(unknown, bool(dims), wanted)
            coordinates = tuple(dim for dim in told if dim in dims)
            found = self.apply(part.kernel(opaque, coordinates), part.operands, wanted, names, coordinates, dims)
            results |= dict(zip(wanted, found, strict=True))
        return [results[at] for at in range(len(self.outs))]

    def _cut(self, named: Named, names: Mapping[Dim, str], cut: set[str]) -> frozenset[str]:
        return frozenset(names[dim.find()] for dim in named if dim is not None) & cut

    def _opaque(self, unknown: str | None, is_cut: bool, wanted: Sequence[int]) -> tuple[str, str] | None:
        """What is shown to users: what is not known inside, and what nothing of can be cut though it has cells."""
        name = self.equation.primitive.name
        if unknown is not None:
            return f"{unknown} in {name}", self.walk.place
        has_cells = any(var.aval.size > 1 for var in (self.equation.outvars[at] for at in wanted))
        return None if is_cut or not has_cells else (name, self.walk.place)

    def apply(
        self,
        kernel: Any,
        used: Sequence[int],
        wanted: Sequence[int],
        names: Mapping[Dim, str],
        told: Sequence[str],
        cut: Collection[str],
    ) -> list[Atom]:
        """One operation.

        Args:
          kernel: of it.
          used: the positions of its operands.
          wanted: those of its results.
          names: of all dimensions.
          told: the dimensions whose coordinates it takes.
          cut: the dimensions that can be cut.
        """
        types = [types_of(self.equation)[at] for at in wanted]
        operands = [operand_of(self.walk.shape(self.values[at]), self.named[at], names, cut) for at in used]
        results = [operand_of(kind.shape, self.outs[at], names, cut) for at, kind in zip(wanted, types, strict=True)]
        read = {term.name for operand in operands for axis in operand.axes for term in axis.terms}
        sizes = {
            term.name: size
            for kind, result in zip(types, results, strict=True)
            for size, axis in zip(kind.shape, result.axes, strict=True)
            for term in axis.terms
            if term.name not in read
        }
        written_as = signature([*operands, *coordinates(*told)], results)
        operation = Operation(written_as, kernel, sizes=tuple(sorted(sizes.items())), name=self.equation.primitive.name)
        return self.walk.leaf(operation, [self.values[at] for at in used], types)


def operand_of(shape: Sequence[int], named: Named, names: Mapping[Dim, str], cut: Collection[str]) -> Operand:
    """The axes of a tensor with these dimensions."""
    axes: list[Axis] = []
    for size, dim in zip(shape, named, strict=True):
        name = None if dim is None or size == 1 else names[dim.find()]
        axes.append(Axis("one") if name is None else Axis("affine", (Term(name, 1, name not in cut),)))
    return Operand(tuple(axes))


TABLE = {"cond": choice, "while": until}
