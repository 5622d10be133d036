"""A program lifted on its own, and which of its dimensions can be cut: those that all of its operations map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.naming import AxisName, AxisVariable
from combinators.recording.current import recording
from combinators.recording.trace import Trace
from tapestry_jax.lifting.assign import Applied, Assigned, Assigner, Named, Repeated
from tapestry_jax.lifting.dims import Dim, unite
from tapestry_jax.lifting.emit import Emitter
from tapestry_jax.lifting.finding.fuse import fuse
from tapestry_jax.lifting.finding.unmerged import unmerged
from tapestry_jax.lifting.values import Atom, Steps
from tapestry_jax.lifting.walk import Walk, words


@dataclass(frozen=True)
class Written:
    """A program as steps.

    Attributes:
      name: of the graph that it becomes.
      inputs: values.
      steps: of it.
    """

    name: str
    inputs: tuple[int, ...]
    steps: Steps


def written(walk: Walk, closed: Any, name: str, derivative_of: str | None = None) -> Written:
    """Write a closed jaxpr down, apart from what stands around it.

    Args:
      walk: that writes what stands around it.
      closed: the program.
      name: of the graph that it becomes.
      derivative_of: what tells the function that it is the derivative of.
    """
    inner = walk.inner()
    if derivative_of is not None:
        inner.outer, inner.around = (*walk.outer, derivative_of), walk.around | {derivative_of}
    inputs = [walk.values.new(kind.shape, kind.dtype) for kind in (words(var.aval) for var in closed.jaxpr.invars)]
    outputs = inner.run(closed.jaxpr, closed.consts, inputs)
    return Written(name, tuple(inputs), fuse(unmerged(inner.finish(inputs, outputs), walk.values)))


class Inside:
    """Programs over common dimensions.

    Args:
      walk: that writes what stands around them.
    """

    def __init__(self, walk: Walk) -> None:
        self._values = walk.values
        self._assigner = Assigner(walk.values)
        self._whole = set[Dim]()
        self._told = dict[Dim, None]()
        self._done: list[tuple[Written, Assigned]] = []

    def new(self, shape: Sequence[int], origin: str) -> Named:
        """Dimensions for the axes of a value from outside."""
        return tuple(
            None if size == 1 else self._assigner.new((origin, axis), f"{origin}_{axis}")
            for axis, size in enumerate(shape)
        )

    def run(self, program: Written, inputs: Sequence[Named]) -> list[Named]:
        """Find the dimensions of a program; returns those of its results."""
        for value, named in zip(program.inputs, inputs, strict=True):
            self._assigner.give(value, named)
        assigned = self._assigner.run(program.steps)
        self._done.append((program, assigned))
        return [self._assigner.named[value] for value in program.steps.outputs]

    def unite(self, left: Named, right: Named) -> None:
        """Say that two tensors have the same dimensions; where they cannot, these stay whole."""
        for one, other in zip(left, right, strict=True):
            if one is None or other is None:
                self._whole.update(dim for dim in (one, other) if dim is not None)
            elif not unite(one, other):
                self._whole |= {one, other}

    def finish(self, outside: Sequence[Named]) -> tuple[dict[Dim, str], set[str], list[str]]:
        """Say what can be cut.

        Args:
          outside: the dimensions of all operands and results.

        Returns:
          A name for every dimension; the names of those that can be cut; and of those whose coordinates are read.
        """
        for _, assigned in self._done:
            for dim in self._kept_whole(assigned):
                self._whole.add(dim)
        names = {root: f"d{at}" for at, root in enumerate(dict.fromkeys(d.find() for d in self._dims(outside)))}
        whole = {dim.find() for dim in self._whole}
        seen = {dim.find() for named in outside for dim in named if dim is not None}
        cut = {names[root] for root in seen if root not in whole}
        return names, cut, sorted({names[dim.find()] for dim in self._told if names[dim.find()] in cut})

    def graphs(self, names: dict[Dim, str]) -> list[Graph]:
        """The programs, in the order in which they were run."""
        return [self._graph(program, assigned, names) for program, assigned in self._done]

    def _dims(self, outside: Sequence[Named]) -> Iterator[Dim]:
        yield from (dim for named in outside for dim in named if dim is not None)
        yield from self._assigner.dims

    def _kept_whole(self, assigned: Assigned) -> Iterator[Dim]:
        """The dimensions that some operation does not map, or reads under another name."""
        for step in assigned.steps:
            for value, named in step.operands:
                yield from _renamed(self._assigner.named[value], named)
            if isinstance(step, Repeated):
                yield from (step.over,) if step.over is not None else ()
                yield from self._kept_whole(step.body)
                for value, named in zip(step.body.outputs, step.outputs, strict=True):
                    yield from _renamed(self._assigner.named[value], named)
            else:
                yield from self._not_mapped(step)

    def _not_mapped(self, step: Applied) -> Iterator[Dim]:
        operation, told = step.operation, step.operation.signature
        coordinates = {operand.coordinate for operand in told.operands} - {None}
        arrays = [operand for operand in told.operands if operand.coordinate is None]
        results = told.results if len(told.results) == len(step.results) else told.results * len(step.results)
        places = [(axes.axes, named) for axes, (_, named) in zip(arrays, step.operands, strict=True)]
        places += [(axes.axes, self._assigner.named[v]) for axes, v in zip(results, step.results, strict=True)]
        # What merges with others, splits or is read by windows there is not mapped where it stands alone either.
        mixed = {term.name for axes, _ in places for axis in axes if axis.name is None for term in axis.terms}
        for axes, named in places:
            for axis, dim in zip(axes, named, strict=True):
                if dim is None:
                    continue
                role = told.role(axis.name) if axis.name is not None else "whole"
                is_mapped = role == "map" or (role == "generated" and axis.name in coordinates)
                if not is_mapped or axis.name in mixed or axis.name == operation.over:
                    yield dim
                elif axis.name in coordinates:
                    self._told[dim] = None

    def _graph(self, program: Written, assigned: Assigned, names: dict[Dim, str]) -> Graph:
        trace = Trace()
        leaves = [
            trace.input(
                f"x{at}",
                self._axes(value, at, names),
                self._values.shapes[value],
                self._values.dtypes[value],
            )
            for at, value in enumerate(program.inputs)
        ]
        with recording(trace):
            found = Emitter(names, self._assigner.named).run(trace, assigned, leaves)
        outputs = [(f"y{at}", value) for at, value in enumerate(found)]
        taken, given = (jax.tree.structure([0] * count) for count in (len(leaves), len(found)))
        return trace.finish(outputs, taken, given, program.name)

    def _axes(self, value: int, number: int, names: dict[Dim, str]) -> tuple[AxisName, ...]:
        named = self._assigner.named[value]
        return tuple(
            names[dim.find()] if dim is not None else AxisVariable(f"axis {axis} of `x{number}`")
            for axis, dim in enumerate(named)
        )


def _renamed(own: Named, wanted: Named) -> Iterator[Dim]:
    for one, other in zip(own, wanted, strict=True):
        if one is not None and other is not None and one.find() is not other.find():
            yield from (one, other)


def entered(walk: Walk, atoms: Sequence[Atom]) -> tuple[Inside, list[int], list[Named]]:
    """Programs to come of one equation, its operands as values, and dimensions for all of their axes."""
    inside, values = Inside(walk), [walk.value(atom) for atom in atoms]
    return inside, values, [inside.new(walk.shape(value), f"x{at}") for at, value in enumerate(values)]
