"""A JAX function lifted on the spot: into a program that is being recorded, on values of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from combinators.errors import GraphError, message, spelt
from combinators.index_space.naming import LEAF, AxisName, AxisVariable, find, suggest, tell_apart, unify
from combinators.recording.current import current_trace, recording, trace_of
from combinators.recording.trace import Trace
from combinators.recording.value import Value
from tapestry_jax.lifting import dims
from tapestry_jax.lifting.assign import Applied, Assigned, Assigner, Named, Repeated
from tapestry_jax.lifting.callables.concrete import numbers_told
from tapestry_jax.lifting.dims import Dim, labels
from tapestry_jax.lifting.emit import Emitter
from tapestry_jax.lifting.lift import stem_of, steps_of
from tapestry_jax.lifting.values import Values


def lift_onto(function: Callable[..., Any], values: Sequence[Value], called: Sequence[str], name: str) -> Any:
    """Add what a JAX function computes to the program that its operands belong to.

    Axes keep the names that they have; those without one take it from what they meet, there or later, as parameters
    of other layers do. What nothing names is called after the operand that it was first met in.

    Args:
      function: of arrays, one for each value; it returns a pytree of arrays.
      values: its operands.
      called: what each is called, as inputs of graphs are.
      name: of the scope in which its operations lie.

    Returns:
      The same pytree of values.

    Raises:
      GraphError: when it returns something that is no array, or asks for numbers of what is traced.
      KernelError: when the function holds a large array.
    """
    program = current_trace() or trace_of(values, name)
    own = program.own(name, values)
    out: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        found, tree = jax.tree.flatten(function(*leaves))
        for leaf in found:
            if not hasattr(leaf, "dtype"):
                details = f"got {type(leaf).__name__}: {spelt(leaf)}"
                raise GraphError(message(f"`{name}` returns what is no array", details, remedy="Return arrays alone."))
        out.append(tree)
        return found

    with numbers_told(name, called):
        closed = jax.make_jaxpr(flat)(*(value.struct for value in own))
    known = Values()
    numbers = [known.new(value.shape, value.dtype) for value in own]
    steps = steps_of(closed, known, numbers)
    assigner = Assigner(known)
    variables = _give(assigner, numbers, own, called)
    assigned = assigner.run(steps)
    told = _labels(program, assigner, assigned, variables)
    for value, number in zip(own, numbers, strict=True):
        _name(value, assigner.named[number], told)
    with recording(program), program.scope(name):
        results = Emitter(told, assigner.named).run(program, assigned, own)
    return jax.tree.unflatten(out[-1], results)


def _give(
    assigner: Assigner, numbers: Sequence[int], values: Sequence[Value], called: Sequence[str]
) -> dict[Dim, AxisVariable]:
    """Dimensions for the axes of operands; axes that are one already have one. Returns those without a name yet."""
    known: dict[AxisName, Dim] = {}
    # Those of arguments first, as where functions are lifted alone.
    for at in sorted(range(len(values)), key=lambda at: "/" in called[at]):
        stem, hint = stem_of(called[at])
        named: list[Dim | None] = []
        for axis, size in enumerate(values[at].shape):
            found = find(values[at].axes[axis])
            if found not in known and (isinstance(found, str) or size != 1):
                is_named = isinstance(found, str)
                known[found] = assigner.new(
                    (found,) if is_named else (stem, axis),
                    found if is_named else f"{hint}_{axis}",
                    found if is_named else None,
                )
            named.append(known.get(found))
        assigner.give(numbers[at], tuple(named))
    for axis, dim in known.items():
        if isinstance(axis, AxisVariable):
            for other in axis.apart & known.keys():
                dims.tell_apart((dim, known[other]))
    return {dim: found for found, dim in known.items() if isinstance(found, AxisVariable)}


def _labels(
    program: Trace, assigner: Assigner, assigned: Assigned, variables: Mapping[Dim, AxisVariable]
) -> dict[Dim, AxisName]:
    """For each class of dimensions a name, or the variable that will have one.

    What a tensor has side by side stays apart from now on, whatever the program does with the results.
    """
    texts = labels(assigner.dims)
    forced = {dim.find() for dim in _forced(assigned, assigner.named)}
    standing: dict[Dim, AxisVariable] = {}
    for dim, variable in variables.items():
        standing.setdefault(dim.find(), variable)
    found: dict[Dim, AxisName] = {}
    for root, text in texts.items():
        if root.name is not None:
            found[root] = text
            continue
        found[root] = variable = standing.get(root) or AxisVariable(f"an axis of `{text}`")
        suggest(variable, text, LEAF + 1, is_shared=True)
    for root in found:
        for other in root.apart & found.keys():
            tell_apart((found[root], found[other]))
    return {root: program.coin(name) if root in forced else name for root, name in found.items()}


def _forced(assigned: Assigned, named: Mapping[int, Named]) -> Iterator[Dim]:
    """Dimensions that need names: what is renamed, and what only an operation or a loop has."""
    for step in assigned.steps:
        for value, wanted in step.operands:
            yield from _renamed(named[value], wanted)
        match step:
            case Applied():
                yield from step.own.values()
            case Repeated():
                if step.over is not None:
                    yield step.over
                for value, wanted in zip(step.body.outputs, step.outputs, strict=True):
                    yield from _renamed(named[value], wanted)
                yield from _forced(step.body, named)


def _renamed(own: Named, wanted: Named) -> Iterator[Dim]:
    for left, right in zip(own, wanted, strict=True):
        if left is not None and right is not None and left.find() is not right.find():
            yield from (left, right)


def _name(value: Value, named: Named, told: Mapping[Dim, AxisName]) -> None:
    for axis, dim in zip(value.axes, named, strict=True):
        if dim is not None:
            unify(axis, told[dim.find()])
