"""A part recorded as a loop: what is carried, what is taken slice by slice, what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.arrows.part import Part
from combinators.errors import CompositionError, message
from combinators.index_space.naming import AxisVariable, find, unify
from combinators.recording.current import trace_of
from combinators.recording.value import Value


def record_loop(
    part: Part,
    turn: Callable[..., tuple[Any, Any]],
    carry: Any,
    stacked: Sequence[tuple[Value, int]] = (),
    constants: Sequence[Any] = (),
    *,
    length: int,
    over: str | None,
    stacked_tree: Any = None,
    several: bool = False,
    until: bool = False,
) -> tuple[Any, Any]:
    """Write the loop of a part down in the program that its operands belong to.

    Args:
      part: whose loop it is: its name, and the arrays that it holds.
      turn: `(carry, *slices, *constants) -> (next carry, outputs)`.
      carry: pytree of values.
      stacked: values with the axis along which slices of them are taken.
      constants: pytrees of values that every turn uses.
      length: how many turns.
      over: the dimension that they go along, where they go along one.
      stacked_tree: the structure of the slices.
      several: whether a turn may carry several operands on, of which `carry` is the first and `constants` the next.
      until: whether the loop ends before the first turn in which the first leaf of the carry holds.

    Returns:
      The last carry, and the outputs of all turns stacked.

    Raises:
      CompositionError: where the carry changes its structure.
    """
    carries, carry_tree = jax.tree.flatten(carry)
    held, held_tree = jax.tree.flatten(tuple(constants))
    recording = trace_of([*carries, *(v for v, _ in stacked), *held], part.name)
    out_tree: list[Any] = []
    carried = carry_tree

    def flat(*values: Value) -> list[Value]:
        nonlocal carried
        cut, rest = len(carries), len(carries) + len(stacked)
        inner = jax.tree.unflatten(carry_tree, values[:cut])
        slices = jax.tree.unflatten(stacked_tree, values[cut:rest]) if stacked else ()
        after, outputs = turn(inner, *slices, *jax.tree.unflatten(held_tree, values[rest:]))
        carried = carried_structure(part.name, after, (carry, *constants), several=several)
        leaves, tree = jax.tree.flatten(outputs)
        out_tree.append(tree)
        return [*jax.tree.leaves(after), *leaves]

    recording.stick(() if over is None else (over,))
    results = recording.loop(flat, carries, stacked, held, length, over, part.name, part.holders(), until)
    count = carried.num_leaves
    return jax.tree.unflatten(carried, results[:count]), jax.tree.unflatten(out_tree[0], results[count:])


def carried_structure(name: str, after: Any, operands: Sequence[Any], *, several: bool) -> Any:
    """The structure that a turn carries on: that of the first operand or, of several results, of as many operands.

    Args:
      name: the loop.
      after: what its step gives.
      operands: what its step takes, of which the first ones are carried.
      several: whether it may be several.

    Raises:
      CompositionError: where it is neither.
    """
    found, first = jax.tree.structure(after), jax.tree.structure(operands[0])
    several = several and type(after) is tuple and len(after) > 1
    if found == first or (several and found == jax.tree.structure(tuple(operands[: len(after)]))):
        return found
    raise CompositionError(
        message(
            f"`{name}` cannot repeat its step: the carry comes out with another structure",
            f"goes in as   {first}",
            f"comes out as {found}",
            remedy="Return the carry with the structure that it came with.",
        )
    )


def sliced_axis(value: Value, over: str, length: int, where: str) -> int:
    """The axis along which to take slices; an anonymous first axis becomes `over`."""
    axis = value.names.index(over) if over in value.names else 0
    fits = value.ndim > 0 and value.shape[axis] == length
    if fits and isinstance(find(value.axes[axis]), AxisVariable):
        unify(value.axes[axis], over)
    if not fits or find(value.axes[axis]) != over:
        raise CompositionError(
            message(
                f"`{where}` takes {length} slices along `{over}`",
                f"got {value!r}",
                remedy=f"Stack the operands along a first axis named `{over}` of size {length}.",
            )
        )
    return axis
