"""The operands and results of an operation that XLA partitions: those of a program, or of its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType, is_inexact


@dataclass(frozen=True)
class Tensors:
    """Operands and results, and what they are the gradient of.

    Attributes:
      operands: types, with names.
      results: types, with names.
      of: of a gradient: the operation that it belongs to. It takes the operands of that, then cotangents of its
        results, and gives cotangents of its operands; each as far as they have gradients.
    """

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    of: Tensors | None = None

    @classmethod
    def of_graph(cls, graph: Graph) -> Tensors:
        """Those of a program."""
        operands = tuple(node.results[0] for node in graph.inputs)
        return cls(operands, tuple(graph.type_of(ref) for _, ref in graph.outputs))

    @property
    def smooth_operands(self) -> tuple[int, ...]:
        """The operands that have gradients."""
        return tuple(at for at, kind in enumerate(self.operands) if is_inexact(kind.dtype))

    @property
    def smooth_results(self) -> tuple[int, ...]:
        """The results that have gradients."""
        return tuple(at for at, kind in enumerate(self.results) if is_inexact(kind.dtype))

    @property
    def gradient(self) -> Tensors:
        """Those of the gradient."""
        cotangents = tuple(self.results[at] for at in self.smooth_results)
        return Tensors((*self.operands, *cotangents), tuple(self.operands[at] for at in self.smooth_operands), self)

    @property
    def program(self) -> Tensors:
        """Those of the program at the root."""
        return self if self.of is None else self.of.program

    def specs(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What is said of the inputs and outputs of the program, of these operands and results."""
        if self.of is None:
            return list(inputs), list(outputs)
        given, made = self.of.specs(inputs, outputs)
        return [*given, *(made[at] for at in self.of.smooth_results)], [given[at] for at in self.of.smooth_operands]
