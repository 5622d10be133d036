"""An arrow and the types of its operands: what the laws of arrows, choice and feedback speak about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np
from hypothesis.strategies import SearchStrategy

from combinators.arrows.arrow import Arrow
from combinators.arrows.compose import as_operands
from combinators.arrows.tracing import trace
from combinators.graphs.evaluate import evaluate
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from combinators.index_space.tensor_type import TensorType, type_of
from laws.draws.operands import Operands, Values, arrays, build_arrays, is_exact_recipe, show_arrays
from laws.subject import Recipe, Subject

AXES = tuple[TensorType, ...]
TIME, LENGTH = "time", 4
"""Of the sequences that feedback is run along."""


@final
class ArrowSubject(Subject):
    """An arrow and the types of its operands.

    Args:
      arrow: whose laws are checked.
      operands: types of its operands.
      name: what messages call it.
      values: operands to use instead of drawn ones, one sequence each.
    """

    def __init__(self, arrow: Arrow[Any, Any], operands: Sequence[Any], name: str, values: Values = None) -> None:
        super().__init__(name)
        self.arrow = arrow
        self.operands = tuple(type_of(kind, f"an operand of `{name}`") for kind in operands)
        self.drawn = Operands(self.operands, values)
        self.graph = trace(arrow, *self.operands)
        self.depth_of_graph = graph_depth(self.graph)

    @property
    def families(self) -> tuple[str, ...]:
        """The laws of arrows, of choice and of feedback."""
        return ("arrow", "choice", "feedback")

    @property
    def types(self) -> str:
        """The types of the operands."""
        return ", ".join(map(str, self.operands))

    @property
    def is_composed(self) -> bool:
        """A program of steps."""
        return True

    @property
    def depth(self) -> float:
        """That of the arrow's graph."""
        return self.depth_of_graph + 2

    @property
    def gives_one(self) -> bool:
        """Whether the result is one tensor."""
        return self.graph.out_tree == jax.tree.structure(0)

    def run(self, arrow: Arrow[Any, Any], *arguments: Any, types: Sequence[Any] | None = None) -> Any:
        """Trace an arrow made of this one at the operands' types, and evaluate its graph on arrays of any precision."""
        kinds = tuple(types) if types is not None else self.operands
        graph = trace(arrow, *kinds)
        held = [holder.held() for holder in arrow.holders()]
        return jax.tree.unflatten(graph.out_tree, evaluate(graph, jax.tree.leaves((held, arguments))))

    def results(self, xs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of the arrow, one after the other."""
        return as_operands(self.run(self.arrow, *xs))

    @property
    def result_types(self) -> tuple[Any, ...]:
        """The types of the results, without names."""
        refs = [self.graph.type_of(ref).struct for _, ref in self.graph.outputs]
        return as_operands(jax.tree.unflatten(self.graph.out_tree, refs))

    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Draw `operands`, or an `extra` operand or a `sequence` of the first one's type."""
        return self.drawn.strategy(domain) if kind == "operands" else arrays(domain)

    def build(self, kind: str, recipe: Recipe) -> Any:
        """Fill the operands."""
        if kind != "operands":
            return build_arrays(self._drawn(kind), recipe)[0]
        return self.drawn.build(recipe)

    def show(self, kind: str, recipe: Recipe) -> str:
        """Domain, seed and types."""
        return self.drawn.show(recipe) if kind == "operands" else show_arrays(self._drawn(kind), recipe)

    def simplest(self, kind: str, recipe: Recipe, fails: Callable[[Recipe], bool]) -> Recipe:
        """Write small operands out, and make them simpler."""
        return self.drawn.simplest(recipe, fails) if kind == "operands" else recipe

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether the operands are small integers."""
        return self.drawn.is_exact(recipe) if kind == "operands" else is_exact_recipe(recipe)

    def _drawn(self, kind: str) -> AXES:
        first = self.operands[0]
        if kind == "extra":
            return (first,)
        return (TensorType.make((TIME, *first.names), (LENGTH, *first.shape), first.dtype),)


def graph_depth(graph: Graph) -> float:
    """Operations on the longest path of a graph; a sum of `n` terms counts as the square root of `n`."""
    depths: list[float] = []
    for index, node in enumerate(graph.nodes):
        before = max((depths[ref.node] for ref in node.operands), default=0.0)
        if isinstance(node, Apply):
            signature, sizes = graph.shaped(index).signature, graph.shaped(index).sizes
            terms = np.prod([sizes[d] for d in (*signature.fold_dims, *signature.whole_dims)], dtype=float)
            before += 2 + 2 * float(np.sqrt(terms))
        elif isinstance(node, Loop):
            before += node.length * graph_depth(node.body)
        depths.append(before)
    return max(depths, default=0.0)
