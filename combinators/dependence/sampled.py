"""Which cell of an axis some cells of a tensor read, where that is no sum of digits: followed back, each by itself.

Of what is put together and taken apart otherwise (`(a b)[::-1]`, a reshape) no form tells which cells are read.
Every cell does tell it of itself: its indices are those of the operation that made it, and lie where its operand has
them. Where an operation folds or takes an axis whole, one of the cells that it reads is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.dependence.reading import ASKED, NOWHERE, Digit, along, weights
from combinators.graphs.nodes import Ref
from combinators.recording.pending import Pending

WAYS = 4
"""How often it is asked, by other cells of what is folded and through other operands."""


class Cells:
    """Follows cells of a result back, through the same operands and the same cells of what is folded each time.

    Args:
      nodes: of a recording.
      source: the value of which an axis is read.
      others: values through which nothing is followed.
      at: where dimensions stand in the result.
      way: one of `WAYS`.
    """

    def __init__(
        self, nodes: Sequence[Pending], source: Ref, others: Collection[Ref], at: Mapping[str, Digit], way: int
    ) -> None:
        self._nodes, self._source, self._at, self._way = nodes, source, at, way
        self._made = {source}
        for index, node in enumerate(nodes):
            if index > source.node and self._made.intersection(node.operands):
                made = (Ref(index, output) for output in range(len(node.results)))
                self._made.update(ref for ref in made if ref not in others)

    def read(self, result: Ref, axis: int, indices: Mapping[str, Any]) -> Any:
        """Where along an axis of the source the cells of these indices of a result, that is made of it, read.

        Returns:
          `NOWHERE` for what a boundary answers by a number; None where a way cannot be followed.
        """
        source, ref, draws = self._source, result, np.random.default_rng(self._way)
        stand = {own for own, _, _ in self._at.values()}
        where = [
            along(number, self._at, indices) + (0 if number in stand else draws.integers(0, max(size, 1)))
            for number, size in enumerate(self._shape(result))
        ]
        lost = np.zeros(ASKED, bool)
        while ref != source:
            node = self._nodes[ref.node]
            if node.renamed is not None:
                ref = node.operands[0]
                continue
            if node.shaped is None or node.shaped.operation.over is not None:
                return None
            found = self._operand(node, ref.output, where, draws)
            if found is None:
                return None
            ref, where, outside = found
            lost = lost | outside
        return np.where(lost, NOWHERE, where[axis])

    def _shape(self, ref: Ref) -> tuple[int, ...]:
        return self._nodes[ref.node].results[ref.output].shape

    def _operand(
        self, node: Pending, output: int, where: Sequence[Any], draws: np.random.Generator
    ) -> tuple[Ref, list[Any], Any] | None:
        """One of the operands that is made of the source, and which cells of it some cells of a result read."""
        assert node.shaped is not None
        shaped = node.shaped
        arrays = [operand for operand in shaped.signature.operands if operand.coordinate is None]
        ways = [each for each in zip(node.operands, arrays, strict=True) if each[0] in self._made]
        ref, operand = ways[draws.integers(len(ways))]
        index = {name: draws.integers(0, max(size, 1)) for name, size in shaped.sizes.items()}
        for own, place in zip(shaped.result_axes[output], where, strict=True):
            if own.kind == "composite" or own.name is not None:
                for term, weight in zip(own.terms, weights(own, shaped.sizes), strict=True):
                    index[term.name] = place // weight % max(shaped.sizes[term.name], 1)
        read, outside = list[Any](), np.zeros(ASKED, bool)
        for own, size in zip(operand.axes, self._shape(ref), strict=True):
            if own.whole_name is not None:
                read.append(np.full(ASKED, draws.integers(0, max(size, 1))))
                continue
            terms = zip(own.terms, weights(own, shaped.sizes), strict=True)
            place = sum((index[term.name] * weight for term, weight in terms), np.full(ASKED, own.offset))
            beyond = (place < 0) | (place >= size)
            if beyond.any() and (answer := _answered(place, size, shaped.operation.boundary)) is not None:
                place, beyond = answer
            elif beyond.any():
                return None
            read.append(place)
            outside = outside | beyond
        return ref, read, outside


def _answered(place: Any, size: int, boundary: str | tuple[str, ...]) -> tuple[Any, Any] | None:
    """The cells by which a boundary answers, and which are none; None where nobody looks."""
    beyond = (place < 0) | (place >= size)
    if boundary == "periodic":
        return place % size, np.zeros_like(beyond)
    if boundary == "edge":
        return np.clip(place, 0, size - 1), np.zeros_like(beyond)
    return (np.clip(place, 0, size - 1), beyond) if boundary == "zero" else None
