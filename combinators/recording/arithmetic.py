"""Elementwise operations on values: axes align by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import CompositionError, GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Term
from combinators.index_space.naming import AxisName, describe, find, unify
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.kernels.elementwise import check_elementwise
from combinators.kernels.kernel import short_name
from combinators.operations.operation import Operation
from combinators.recording.current import trace_of
from combinators.recording.renaming import give_way_together
from combinators.recording.value import Value


@dataclass(frozen=True)
class Aligned:
    """A cell-by-cell kernel on operands whose axes lie differently, or with numbers among its operands.

    Attributes:
      function: acts cell by cell on arrays of one shape.
      positions: for each operand its axes' positions in the result, or None for a number.
      numbers: the numbers, in order.
      rank: of the result.
    """

    function: Callable[..., Any]
    positions: tuple[tuple[int, ...] | None, ...]
    numbers: tuple[bool | int | float | complex, ...]
    rank: int

    def __call__(self, *blocks: Any) -> Any:
        """Bring every block to the result's axis order and apply the function."""
        arrays, numbers = iter(blocks), iter(self.numbers)
        return self.function(
            *(next(numbers) if p is None else _placed(next(arrays), p, self.rank) for p in self.positions)
        )


def _placed(block: Any, positions: tuple[int, ...], rank: int) -> Any:
    order = sorted(range(len(positions)), key=positions.__getitem__)
    if order != list(range(len(order))):
        block = jnp.transpose(block, order)
    missing = [axis for axis in range(rank) if axis not in positions]
    # Leading axes broadcast by themselves.
    inner = [axis for axis in missing if axis > min(positions, default=rank)]
    if not inner:
        return block
    lead = min(positions)
    return jnp.expand_dims(block, [axis - lead for axis in inner])


def binary(name: str, left: Any, right: Any) -> Value:
    """An operator between a value and a value or number."""
    return elementwise(getattr(jnp, name), left, right, name=name)


def unary(name: str, value: Value) -> Value:
    """An operator on a value."""
    return elementwise(getattr(jnp, name), value, name=name)


def elementwise(function: Callable[..., Any], *operands: Any, name: str | None = None) -> Any:
    """Apply a cell-by-cell function to values and numbers.

    Axes align by name. Where an axis has no name, operands align from the right as in NumPy, and their names unify.

    Raises:
      GraphError: for an operand that is neither a value nor a number, and for numbers alone.
      CompositionError: when anonymous axes do not meet.
      KernelError: when the function mixes cells.
    """
    name = name if name is not None else short_name(function)
    operands = tuple(operand.item() if isinstance(operand, np.generic) else operand for operand in operands)
    values = [operand for operand in operands if isinstance(operand, Value)]
    for number, operand in enumerate(operands):
        if not isinstance(operand, Value | bool | int | float | complex):
            raise GraphError(
                message(
                    f"operand {number} of `{name}` is not a value of the program",
                    f"got {type(operand).__name__}: {spelt(operand)}",
                    remedy="Pass arrays as arguments of the program; only numbers may stand in it.",
                )
            )
    if not values:
        raise GraphError(
            message(
                f"`{name}` was applied to numbers alone",
                f"got {', '.join(map(repr, operands)):.80}",
                remedy="Compute with them in Python, or pass a value of the program.",
            )
        )
    recording = trace_of(values, name)
    structs = [jax.ShapeDtypeStruct((2, 3), v.dtype) for v in values]
    numbers = tuple(operand for operand in operands if not isinstance(operand, Value))
    slots = [isinstance(operand, Value) for operand in operands]
    tested = Aligned(function, tuple((0, 1) if slot else None for slot in slots), numbers, 2) if numbers else function
    check_elementwise(tested, structs, f"tp.Map({name})")
    values, axes = _align(name, values)
    rank = 1 + max((axis for positions in axes for axis in positions), default=-1)
    listed = iter(axes)
    placed = tuple(next(listed) if slot else None for slot in slots)
    # Only operators: what a user wrote may change, and numbers that are equal may differ (0.0 and -0.0).
    make = _operation if not numbers and function is vars(jnp).get(name) else _operation.__wrapped__
    operation = make(function, placed, numbers, _repeated(values, axes, rank), rank, name)
    return recording.apply(operation, values, suggests=False)


# The layers of a model repeat the same few: what is known of an operation is not found again for its equal.
@lru_cache(maxsize=1024)
def _operation(
    function: Callable[..., Any],
    placed: tuple[tuple[int, ...] | None, ...],
    numbers: tuple[bool | int | float | complex, ...],
    repeated: tuple[tuple[bool, ...], ...],
    rank: int,
    name: str,
) -> Operation:
    plain = not numbers and all(positions == tuple(range(rank)) for positions in placed)
    kernel = function if plain else Aligned(function, placed, numbers, rank)
    axes = [positions for positions in placed if positions is not None]
    return Operation(_signature(axes, repeated, rank), kernel, name=name)


def _repeated(values: Sequence[Value], axes: Sequence[tuple[int, ...]], rank: int) -> tuple[tuple[bool, ...], ...]:
    """Of every axis of the values, whether it is one element that is repeated along an axis of the result."""
    sizes = [1] * rank
    for value, positions in zip(values, axes, strict=True):
        for size, position in zip(value.shape, positions, strict=True):
            sizes[position] = size if sizes[position] == 1 else sizes[position]
    return tuple(
        tuple(size == 1 and sizes[position] != 1 for position, size in zip(positions, value.shape, strict=True))
        for value, positions in zip(values, axes, strict=True)
    )


def _signature(axes: Sequence[tuple[int, ...]], repeated: Sequence[tuple[bool, ...]], rank: int) -> Signature:
    named = [Axis("affine", (Term(f"d{position}"),)) for position in range(rank)]
    operands = [
        Operand(tuple(Axis("one") if one else named[position] for position, one in zip(positions, ones, strict=True)))
        for positions, ones in zip(axes, repeated, strict=True)
    ]
    return Signature.parse(", ".join(map(str, operands)) + " -> " + str(Operand(tuple(named))))


def _agreed(values: list[Value]) -> list[Value]:
    """Values whose axes align: one whose name nobody wrote is no other than that of the same place from the right."""
    trace, rank = values[0].trace, max(value.ndim for value in values)
    if all(trace.wrote(axis) for value in values for axis in value.axes):
        return values
    found: list[list[tuple[int, int]]] = []
    for back in range(1, rank + 1):
        places = [(number, value.ndim - back) for number, value in enumerate(values) if value.ndim >= back]
        size = max(values[number].shape[axis] for number, axis in places)
        places = [(number, axis) for number, axis in places if values[number].shape[axis] == size]
        axes = [values[number].axes[axis] for number, axis in places]
        # A name that somebody wrote, and that another operand has elsewhere, aligns with that.
        names = {find(axis) for axis in axes if trace.wrote(axis)}
        if not any(name in value.names and name not in value.names[-back:][:1] for name in names for value in values):
            found.append(places)
    return give_way_together(values, found)


def _align(name: str, values: list[Value]) -> tuple[list[Value], list[tuple[int, ...]]]:
    """Operands under names that align, and for each the positions of its axes in the result."""
    if all(value.shape == values[0].shape and _same_axes(value, values[0]) for value in values):
        return values, [tuple(range(values[0].ndim))] * len(values)
    values = _agreed(values)
    if any(None in value.names for value in values):
        return values, _align_from_right(name, values)
    widest = max(values, key=lambda value: value.ndim)
    order: list[AxisName] = list(widest.names)  # pyright: ignore[reportAssignmentType]
    for value in values:
        order.extend(axis for axis in value.names if axis not in order)  # pyright: ignore[reportArgumentType]
    return values, [tuple(order.index(axis) for axis in value.names) for value in values]  # pyright: ignore[reportArgumentType]


def _same_axes(left: Value, right: Value) -> bool:
    return all(find(a) is find(b) or find(a) == find(b) for a, b in zip(left.axes, right.axes, strict=True))


def _align_from_right(name: str, values: Sequence[Value]) -> list[tuple[int, ...]]:
    rank = max(value.ndim for value in values)
    widest = next(value for value in values if value.ndim == rank)
    for value in values:
        for axis, other, size, known in zip(
            reversed(value.axes), reversed(widest.axes), reversed(value.shape), reversed(widest.shape), strict=False
        ):
            if size == known and not unify(axis, other):
                raise CompositionError(
                    message(
                        f"`{name}` aligns {describe(axis)} with {describe(other)}",
                        f"operands {values!r}",
                        remedy="Name every axis, so that operands align by name, or rename one.",
                    )
                )
    return [tuple(range(rank - value.ndim, rank)) for value in values]
