"""The abstract expression graph: what depends on what, with every name, size and dtype known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax

from combinators.arguments import is_whole, read_name
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.evaluate import call_graph
from combinators.graphs.key import graph_key
from combinators.graphs.nodes import Apply, Input, Node, Ref, move_refs
from combinators.graphs.scopes import is_inside
from combinators.graphs.show import show
from combinators.index_space.tensor_type import TensorType
from combinators.kernels.immutable import Immutable
from combinators.operations.shaped import Shaped, shape

if TYPE_CHECKING:
    from combinators.graphs.opaque import OpaqueOperation


@dataclass(frozen=True, repr=False)
class Graph(Immutable):
    """An immutable program.

    Attributes:
      nodes: in topological order, the inputs first.
      outputs: name and value of what is observed.
      named: name and value of everything that can be observed.
      in_tree: how the inputs make the arguments.
      out_tree: how the outputs make the result.
      name: of the traced function.
      suggested: the names of dimensions that nobody gave to a tensor, and that only signatures suggest: labels for
        plans, and no part of what is computed.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import Map, TensorType
      >>> from combinators import named
      >>> from combinators import trace
      >>> graph = trace(lambda x: named("h", Map(jnp.sin)(x)) + 1, TensorType({"n": 2}))
      >>> print(graph)
      lambda: y = add
      x    input   float32(n=2)
      sin  n -> n  float32(n=2)
      add  n -> n  float32(n=2)
      >>> graph(jnp.zeros(2)).tolist(), graph.observe("h")(jnp.zeros(2)).tolist()
      ([1.0, 1.0], [0.0, 0.0])
      >>> Graph.from_json(graph.observe("h").to_json()).key == graph.observe("h").key
      True
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, Ref], ...]
    named: tuple[tuple[str, Ref], ...]
    in_tree: Any = field(repr=False)
    out_tree: Any = field(repr=False)
    name: str = "program"
    suggested: frozenset[str] = frozenset()

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs, in the order of the flattened arguments."""
        return tuple(node for node in self.nodes if isinstance(node, Input))

    @cached_property
    def key(self) -> str:
        """Structural hash: the same for equal computations, whatever their paths and input names."""
        return graph_key(self)

    def type_of(self, ref: Ref) -> TensorType:
        """The type of a value.

        Raises:
          GraphError: for what is no reference to one of this graph.
        """
        try:
            return self.nodes[ref.node].results[ref.output]
        except (AttributeError, IndexError, TypeError) as error:
            raise _no_place("a value", "a reference, such as graph.outputs[0][1]", ref) from error

    def shaped(self, index: int) -> Shaped:
        """The operation of an `Apply` node with its sizes.

        Raises:
          GraphError: where no operation stands there.
        """
        found = self._shaped.get(index) if is_whole(index) else None
        if found is None:
            node = self.nodes[index] if is_whole(index) and 0 <= index < len(self.nodes) else None
            if not isinstance(node, Apply):
                raise _no_place("an operation", "the place of an `Apply` among its nodes", index)
            found = self._shaped[index] = shape(
                node.operation, tuple(self.type_of(ref).struct for ref in node.operands)
            )
        return found

    @cached_property
    def _shaped(self) -> dict[int, Shaped]:
        """Those that were asked for: planning asks for each many times."""
        return {}

    def observe(self, *names: str) -> Graph:
        """The same graph with these outputs alone; what they do not need is dropped.

        Args:
          names: outputs or values named by `tp.named`. A name above others stands for them: `y` for `y/0` and `y/1`.

        Returns:
          A graph whose result is the value, or the tuple of the values where there are several.

        Raises:
          GraphError: for a name that the graph does not have.
        """
        names = tuple(read_name(name, "what is observed") for name in names)
        known = dict(self.named) | dict(self.outputs)
        names = tuple(found for name in names for found in _below(name, known))
        missing = [name for name in names if name not in known]
        if missing or not names:
            raise GraphError(
                message(
                    f"cannot observe {', '.join(map(repr, missing)) or 'nothing'}",
                    f"the graph has {', '.join(sorted(known))}",
                    remedy="Name a value in the program with tp.named(name, value).",
                )
            )
        outputs = tuple((name, known[name]) for name in names)
        single = jax.tree.structure(0)
        out_tree = single if len(names) == 1 else jax.tree.structure((0,) * len(names))
        if outputs == self.outputs:
            out_tree = self.out_tree
        return prune(replace(self, outputs=outputs, out_tree=out_tree, named=outputs))

    def subgraph(self, path: str) -> Graph:
        """The part whose operation paths are `path` or lie below it; what comes from outside becomes an input.

        Raises:
          GraphError: where no operation lies there.
        """
        path = read_name(path, "the path of a subgraph")
        inside = [i for i, n in enumerate(self.nodes) if not isinstance(n, Input) and is_inside(n.path, path)]
        if not inside:
            raise GraphError(
                message(
                    f"the graph has no operation below {path!r}",
                    f"top-level paths: {', '.join(sorted({n.path.split('/')[0] for n in self.nodes}))}",
                    remedy="Give the path of an operation or of a scope, as graph.show() prints them.",
                )
            )
        return _cut_out(self, inside, path)

    def opaque(self) -> tuple[OpaqueOperation, ...]:
        """The operations of a lifted function that no rule knows, so that nothing of them can be cut, in order.

        Returns:
          For each its path, the primitive and where it was written; none for a graph that was traced.
        """
        # As with files: it is asked of lifted functions alone.
        from combinators.graphs.opaque import opaque_operations

        return opaque_operations(self)

    def show(self, format: str = "text") -> str:
        """The graph as text, or as a Mermaid flow chart (`format="mermaid"`)."""
        return show(self, read_name(format, "the format in graph.show"))

    def _repr_html_(self) -> str:
        """What notebooks show: the table of `show`."""
        return _notebook_table()(self)

    def to_json(self) -> str:
        """Store the graph as JSON text; kernels by public importable name.

        Raises:
          KernelError: where a kernel has no public name.
        """
        return _text_files().graph_to_json(self)

    @staticmethod
    def from_json(text: str, *, allow: Sequence[str] = ()) -> Graph:
        """Read a graph back. Safe on texts of any origin: docs/security.md says what is promised.

        Args:
          text: what `to_json` gave.
          allow: packages whose functions it may name, or single functions, beside the library's kernels and JAX's array
            functions: `("mypackage", "jax.numpy:pad")`. They are imported, and called while types are checked.

        Raises:
          FormatError: when the text is truncated, edited or of another version, or names what is not allowed.
          GraphError: when `allow` names no packages.
        """
        return _text_files().graph_from_json(text, allow, Graph)

    def __call__(self, *args: Any) -> Any:
        """Run the graph, unplanned, on arrays.

        Args:
          args: as those that it was traced for.

        Raises:
          GraphError: for a wrong number of arguments, or something that is not an array.
          SignatureError: for a wrong rank, size or dtype; all wrong ones at once.
        """
        return call_graph(self, args)

    def __str__(self) -> str:
        return self.show()

    def __repr__(self) -> str:
        inputs, outputs = len(self.inputs), [f"{name} {self.type_of(ref)}" for name, ref in self.outputs[:3]]
        more = f", and {len(self.outputs) - 3} more" if len(self.outputs) > 3 else ""
        operations = len(self.nodes) - inputs
        counts = f"{inputs} input{'s' * (inputs != 1)}, {operations} operation{'s' * (operations != 1)}"
        return f"Graph({self.name}: {counts} -> {', '.join(outputs)}{more})"


def _no_place(what: str, expected: str, got: object) -> GraphError:
    details = f"expected {expected}", f"got {type(got).__name__}: {spelt(got)}"
    return GraphError(message(f"the graph has no such place of {what}", *details, remedy="Take one of graph.nodes."))


def _text_files():
    # Most programs store no graph, and what reads and writes them is four modules more: it is loaded when asked for.
    from combinators.graphs import json

    return json


def _notebook_table():
    # As with files: notebooks alone ask for it.
    from combinators.graphs.html import graph_table

    return graph_table


def prune(graph: Graph) -> Graph:
    """Drop every node, but no input, that neither an output nor a named value needs."""
    needed = {ref.node for _, ref in (*graph.outputs, *graph.named)}
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if isinstance(node, Input):
            needed.add(index)
        elif index in needed:
            needed.update(ref.node for ref in node.operands)
    if len(needed) == len(graph.nodes):
        return graph
    order = sorted(needed)
    moved = {old: new for new, old in enumerate(order)}
    nodes = tuple(move_refs(graph.nodes[old], moved) for old in order)
    return replace(graph, nodes=nodes, outputs=_move_named(graph.outputs, moved), named=_move_named(graph.named, moved))


def _move_named(pairs: Iterable[tuple[str, Ref]], moved: dict[int, int]) -> tuple[tuple[str, Ref], ...]:
    return tuple((name, Ref(moved[ref.node], ref.output)) for name, ref in pairs)


def _below(name: str, known: Iterable[str]) -> list[str]:
    """The name, or, where it is none itself, the names below it."""
    inside = [other for other in known if other.startswith(f"{name}/")]
    return [name] if name in known or not inside else inside


def _cut_out(graph: Graph, inside: Sequence[int], path: str) -> Graph:
    members = set(inside)
    outside: dict[Ref, int] = {}
    for index in inside:
        for ref in graph.nodes[index].operands:
            if ref.node not in members:
                outside.setdefault(ref, len(outside))
    moved = {old: len(outside) + new for new, old in enumerate(inside)}

    def place(ref: Ref) -> Ref:
        return Ref(moved[ref.node], ref.output) if ref.node in members else Ref(outside[ref], 0)

    nodes: list[Node] = [Input(f"x{i}", (graph.type_of(ref),)) for ref, i in outside.items()]
    nodes += [replace(graph.nodes[i], operands=tuple(map(place, graph.nodes[i].operands))) for i in inside]
    used = {ref for i, n in enumerate(graph.nodes) if i not in members for ref in n.operands}
    used |= {ref for _, ref in graph.outputs}
    results = [Ref(i, o) for i in inside for o in range(len(graph.nodes[i].results)) if Ref(i, o) in used] or [
        Ref(inside[-1], 0)
    ]
    outputs = tuple((f"y/{n}" if len(results) > 1 else "y", place(ref)) for n, ref in enumerate(results))
    out_tree = jax.tree.structure(0 if len(results) == 1 else (0,) * len(results))
    in_tree = jax.tree.structure((0,) * len(outside))
    return Graph(tuple(nodes), outputs, outputs, in_tree, out_tree, path, graph.suggested)
