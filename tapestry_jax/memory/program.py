"""A device's program as buffers see it: values of so many bytes, and what makes and reads them, in order."""

from __future__ import annotations

from dataclasses import field

from combinators.frozen import dataclass

VIEW, FUSED, COSTLY, REDUCED, OPAQUE, UPDATE, LOOP, BRANCH, HELD = range(9)
"""What compilers do with an operation.

A view makes no elements; what is held is a view of what has to stand in memory. What is fused is computed where it is
read, as often as it is; what is costly, too, unless several read it. A reduction reads what is fused, and has a result
of its own; an opaque operation (a product, a collective, a sort) reads and makes buffers. An update writes into its
first operand.
"""


@dataclass(frozen=True)
class Value:
    """An array on a device.

    Attributes:
      bytes: of its elements.
      text: its type, `bfloat16[8,128]`.
    """

    bytes: int
    text: str

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        listed = self.text[self.text.find("[") + 1 : -1] if self.text.endswith("]") else ""
        return tuple(map(int, listed.split(","))) if listed else ()


@dataclass(frozen=True)
class Node:
    """One operation.

    Attributes:
      kind: one of the above.
      operands: numbers of values.
      results: numbers of values.
      path: of the operation that caused it.
      backward: whether it belongs to the gradient.
      bodies: of a loop its turn, of a branch all of its programs.
      held: of a loop, how many operands are the same in every turn.
      carries: of a loop, how many operands behind them are handed on from turn to turn.
      rounds: whether it is a product without a precision of its own, whose float32 operands TPUs round to bfloat16.
      library: what the library of kernels that XLA calls on CPUs knows it as: `reduction`, `product`, `joins` for
        arithmetic, `adds` for sums; `scatters` what adds to zeros, `placed` what puts arrays side by side,
        `apart` what is not written over its operands, `turns` transpositions, `sorts` sorting; else empty.
      merged: places of operands that it reads as matrices although they have more dimensions.
      parts: of an all-to-all, how many pieces each device sends; if it cuts the last dimension, `library` is `last`.
      extents: of a product, the sizes of its batch, its rows, its columns and of what it sums over.
      cuts: whether an all-to-all sends, or a gather puts side by side, along another dimension than the first.
      rows: whether a reduction is over the last dimension.
      name: of the primitive, where it is one.
      places: of a loop, how many of the last operands are where it writes what its turns give.
      turned: places of operands that a product reads as matrices in whose order they do not lie.
      group: of a collective, what those have in common that can be sent as one.
    """

    kind: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    path: str
    backward: bool = False
    bodies: tuple[Program, ...] = ()
    held: int = 0
    carries: int = 0
    rounds: bool = False
    library: str = ""
    turned: tuple[int, ...] = ()
    merged: tuple[int, ...] = ()
    parts: int = 0
    extents: tuple[int, ...] = ()
    cuts: bool = False
    rows: bool = False
    name: str = ""
    places: int = 0
    group: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """Operations in order.

    Attributes:
      values: by number.
      inputs: numbers of values.
      nodes: in order.
      outputs: numbers of values, or None for what is constant.
    """

    values: tuple[Value, ...] = field(repr=False)
    inputs: tuple[int, ...]
    nodes: tuple[Node, ...] = field(repr=False)
    outputs: tuple[int | None, ...]
