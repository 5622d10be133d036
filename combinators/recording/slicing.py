"""Slices and positions that are known when a program is written: maps whose signature says which cells they read."""

from __future__ import annotations

import operator
from typing import Any, NoReturn, cast

import jax.numpy as jnp

from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from combinators.recording.current import trace_of
from combinators.recording.value import Value


@dataclass(frozen=True)
class Pick:
    """Take the cells of a block that a slice takes: a block holds what lies between its first and its last one.

    Attributes:
      steps: for each axis of the operand its step, negative from its last cell on; None for a position, of which one
        cell is read.
      added: axes of the result that have size 1.
    """

    steps: tuple[int | None, ...]
    added: tuple[int, ...]

    def __call__(self, block: Any) -> Any:
        """The cells, without the axes of positions."""
        picked = block[tuple(0 if step is None else slice(None, None, step) for step in self.steps)]
        return jnp.expand_dims(picked, self.added)


@dataclass(frozen=True)
class Turn:
    """Turn axes around, which are whole in a block: what graphs stored by earlier releases hold for a negative step.

    Attributes:
      axes: positions in the operand.
    """

    axes: tuple[int, ...]

    def __call__(self, block: Any) -> Any:
        """The same cells, the last one first."""
        return jnp.flip(block, self.axes)


def pick(value: Value, key: Any) -> Value:
    """Read `value[key]`: integers, slices, `None` and `...`.

    A slice with a negative step reads from its last cell down to its first: `(15-a) -> a` for all of 16.

    Raises:
      GraphError: for any other index, and for a position that does not exist.
    """
    steps: list[int | None] = []
    operand: list[str] = []
    result: list[str] = []
    added: list[int] = []
    sizes: dict[str, int] = {}
    axes = iter(range(value.ndim))
    for item in _full(value, key):
        if item is None:
            added.append(len(result))
            result.append("1")
            continue
        axis = next(axes)
        size, name = value.shape[axis], f"d{axis}"
        if isinstance(item, slice):
            start, count, step = _bounds(value, item, size)
            plain = (start, count, step) == (0, size, 1)
            # A window of one cell has a size of its own, where a bare name would have that of the axis.
            operand.append(name if plain else f"({step}*{name}+[w{axis}]+{start})")
            result.append(name)
            steps.append(step)
            if not plain:
                sizes |= {name: count, f"w{axis}": 1}
        else:
            at = _position(value, item, size, axis)
            operand.append(f"([{name}]+[w{axis}]+{at})")
            steps.append(None)
            sizes |= {name: 1, f"w{axis}": 1}
    if not sizes and not added:
        return value
    signature = Signature.parse(f"{' '.join(operand)} -> {' '.join(result)}")
    kernel, listed = Pick(tuple(steps), tuple(added)), tuple(sorted(sizes.items()))
    return trace_of([value], "slice").apply(Operation(signature, kernel, sizes=listed, name="slice"), [value])


def _full(value: Value, key: Any) -> list[Any]:
    """One entry for every axis, and None for every new one."""
    listed: list[Any] = list(cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else [key]
    for item in listed:
        if not (item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item)):
            _refuse(
                value,
                f"is indexed by {type(item).__name__}: {spelt(item, 60)}",
                "Only constants may stand there. Take cells by a kernel: "
                'tp.Map(lambda x, at: x[at], "[n], m -> m")(x, at).',
            )
    given = sum(item is not None and item is not Ellipsis for item in listed)
    ellipses = sum(item is Ellipsis for item in listed)
    if given > value.ndim or ellipses > 1:
        _refuse(value, f"is indexed by {given} axes and {ellipses} `...`", "Give at most one index for every axis.")
    if not ellipses:
        listed.append(Ellipsis)
    at = next(number for number, item in enumerate(listed) if item is Ellipsis)
    return [*listed[:at], *[slice(None)] * (value.ndim - given), *listed[at + 1 :]]


def _bounds(value: Value, item: slice, size: int) -> tuple[int, int, int]:
    """Start, count and step of a slice."""
    if not all(part is None or _is_integer(part) for part in (item.start, item.stop, item.step)):
        _refuse(value, f"has the slice {item}", "Only constants may stand in it.")
    step = 1 if item.step is None else operator.index(item.step)
    if not step:
        _refuse(value, f"has the slice {item}, whose step is 0", "Give a step of 1 or more, or of -1 or less.")
    start, stop, step = item.indices(size)
    count = len(range(start, stop, step))
    return (start if count else 0), count, step


def _position(value: Value, item: Any, size: int, axis: int) -> int:
    at = operator.index(item)
    if not -size <= at < size:
        _refuse(value, f"has no cell {at} along axis {axis}", f"Its positions are 0 to {size - 1}.")
    return at % size


def _is_integer(item: Any) -> bool:
    return not isinstance(item, bool | Value) and hasattr(item, "__index__") and not getattr(item, "shape", ())


def _refuse(value: Value, problem: str, remedy: str) -> NoReturn:
    raise GraphError(message(f"a value of a program that is being traced {problem}", f"got {value!r}", remedy=remedy))
