"""From steps with dimensions to the graph, recorded as every other program is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from combinators.index_space.axis import Axis, Term
from combinators.index_space.naming import AxisName, find, unify
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.dense import Dense
from combinators.operations.operation import Operation
from combinators.recording.trace import Trace
from combinators.recording.value import Value
from tapestry_jax.lifting.assign import Applied, Assigned, Named, Repeated
from tapestry_jax.lifting.dims import Dim


class Emitter:
    """Records steps in a program.

    Args:
      labels: the name of each dimension, or a variable where it has none yet and needs none.
      named: for each value the dimensions of its axes.
    """

    def __init__(self, labels: Mapping[Dim, AxisName], named: Mapping[int, Named]) -> None:
        self._labels, self._named = labels, named
        self._told: dict[Any, Operation] = {}

    def label(self, dim: Dim | None) -> str | None:
        """The name of a dimension, as far as it has one."""
        found = None if dim is None else find(self._labels[dim.find()])
        return found if isinstance(found, str) else None

    def run(self, program: Trace, steps: Assigned, inputs: Sequence[Value], around: str = "") -> list[Value]:
        """Record the steps; returns the outputs.

        Args:
          program: that records them.
          steps: what is recorded.
          inputs: of the steps.
          around: the scope of the loop whose body they are.
        """
        known = dict(zip(steps.inputs, inputs, strict=True))
        for step in steps.steps:
            with program.within(_below(step.scope, around)):
                if isinstance(step, Repeated):
                    results = self._loop(program, step, known)
                else:
                    results = self._apply(program, step, known)
            for value, result in zip(step.results, results, strict=True):
                known[value] = self._call(result, self._named[value])
        return [known[value] for value in steps.outputs]

    def _apply(self, program: Trace, step: Applied, known: Mapping[int, Value]) -> list[Value]:
        operands = [self._renamed(known[value], named) for value, named in step.operands]
        own = {name: label for name, dim in step.own.items() if (label := self.label(dim)) is not None}
        key = (id(step.operation), tuple(own.items()))
        if key not in self._told:
            self._told[key] = _with_names(step.operation, own)
        return jax.tree.leaves(program.apply(self._told[key], operands, suggests=False), is_leaf=_is_value)

    def _loop(self, program: Trace, step: Repeated, known: Mapping[int, Value]) -> list[Value]:
        operands = [self._call(self._renamed(known[value], named), named) for value, named in step.operands]
        carries, rest = operands[: step.carries], operands[step.carries :]
        stacked, constants = [(value, 0) for value in rest[: step.stacked]], rest[step.stacked :]

        def body(*inner: Value) -> list[Value]:
            results = self.run(inner[0].trace if inner else program, step.body, inner, step.scope)
            return [self._renamed(value, named) for value, named in zip(results, step.outputs, strict=True)]

        told = step.length, self.label(step.over), step.name
        return program.loop(body, carries, stacked, constants, *told, until=step.until)

    def _call(self, value: Value, named: Named) -> Value:
        """Give the axes of a value their names where they have none yet."""
        for axis, dim in zip(value.axes, named, strict=True):
            if dim is not None and not isinstance(find(axis), str):
                unify(axis, self._labels[dim.find()])
        return value

    def _renamed(self, value: Value, named: Named) -> Value:
        """The value with the names that its axes need to have."""
        mapping: dict[str, str] = {}
        for old, dim in zip(value.names, named, strict=True):
            new = self.label(dim)
            if old is not None and new is not None and old != new:
                mapping[old] = new
        return value.trace.rename(value, mapping) if mapping else value


def _below(scope: str, around: str) -> str:
    """A scope inside of a loop, whose path begins with the loop's."""
    return "" if scope == around else scope.removeprefix(f"{around}/")


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)


def _with_names(operation: Operation, own: Mapping[str, str]) -> Operation:
    """The operation whose dimensions without an operand have their final names, and the others names beside them."""
    if not own:
        return operation
    others = [dim for dim in operation.signature.dims if dim not in own]
    names = dict(own)
    for dim in others:
        name = dim
        while name in names.values():
            name = f"{name}_"
        names[dim] = name
    told = operation.signature
    carrier = operation.carrier
    return replace(
        operation,
        signature=Signature(
            tuple(_operand(operand, names) for operand in told.operands),
            tuple(_operand(result, names) for result in told.results),
        ),
        sizes=tuple(sorted((names[dim], size) for dim, size in operation.sizes)),
        over=None if operation.over is None else names[operation.over],
        carrier=None if carrier is None else tuple(tuple(names.get(a, a) for a in axes) for axes in carrier),
        dense=tuple(_dense(entry, names) for entry in operation.dense),
    )


def _dense(entry: Any, names: Mapping[str, str]) -> Any:
    """A dense kernel, which may want dimensions whole, by their final names."""
    if not isinstance(entry, Dense) or entry.whole is None:
        return entry
    return replace(entry, whole=tuple(names.get(dim, dim) for dim in entry.whole))


def _operand(operand: Operand, names: Mapping[str, str]) -> Operand:
    if operand.coordinate is not None:
        return Operand(coordinate=names[operand.coordinate])
    return Operand(
        tuple(
            Axis(a.kind, tuple(Term(names[t.name], t.coefficient, t.whole) for t in a.terms), a.offset)
            for a in operand.axes
        )
    )
