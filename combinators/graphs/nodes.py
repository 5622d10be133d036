"""The nodes of graphs: what each computes, of which values, and what it gives."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.kernels.immutable import Immutable
from combinators.operations.operation import Operation

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph

DEEPEST_LOOPS = 24
"""How deep loops may be nested. Each costs JAX some twenty calls inside each other, of about a thousand."""
MOST_TURNS = 2**31 - 1
"""Of one loop: JAX counts them in 32 bits."""


class Ref(NamedTuple):
    """A value of a graph: the output `output` of the node `node`."""

    node: int
    output: int


@dataclass(frozen=True)
class Input(Immutable):
    """A value that comes from outside."""

    name: str
    results: tuple[TensorType, ...]
    operands: tuple[Ref, ...] = ()

    @property
    def path(self) -> str:
        """The name of the input."""
        return self.name


@dataclass(frozen=True)
class Apply(Immutable):
    """An operation applied to values. `names` binds the operation's dimensions to the names of the tensors.

    `written` says what the operation computed when it was traced, where that can change: see `unchanged`.
    """

    operation: Operation
    operands: tuple[Ref, ...]
    names: tuple[tuple[str, str], ...]
    results: tuple[TensorType, ...]
    path: str
    written: Any = field(default=None, compare=False, repr=False)

    @property
    def bound(self) -> dict[str, str]:
        """The operation's dimension to the name it has here."""
        return dict(self.names)


@dataclass(frozen=True)
class Rename(Immutable):
    """The same tensor under other axis names; `names` is old to new."""

    operands: tuple[Ref, ...]
    names: tuple[tuple[str, str], ...]
    results: tuple[TensorType, ...]
    path: str


@dataclass(frozen=True)
class Loop(Immutable):
    """A body run `length` times: `(carries, slices of stacked, constants) -> (carries, slices of outputs)`.

    Attributes:
      body: its inputs are the carries, then one slice of each stacked operand, then the constants.
      length: how often the body runs; at most, with `until`.
      over: the dimension that the stacked operands and outputs have more than their slices; None without them.
      operands: carries, stacked operands, constants.
      carries: how many operands are carried.
      axes: for each stacked operand the position of `over`.
      results: the final carries, then the stacked outputs with `over` in front.
      until: whether it ends before the first turn in which carry 0, a bool, holds. It has no slices then.
    """

    body: Graph
    length: int
    over: str | None
    operands: tuple[Ref, ...]
    carries: int
    axes: tuple[int, ...]
    results: tuple[TensorType, ...]
    path: str
    until: bool = False


Node = Input | Apply | Rename | Loop


def unrenamed(graph: Graph, ref: Ref) -> Ref:
    """The value itself, of one that may be the same under other axis names."""
    while isinstance(node := graph.nodes[ref.node], Rename):
        ref = node.operands[0]
    return ref


def needed_nodes(graph: Graph) -> set[int]:
    """The nodes that the outputs alone need."""
    needed = {ref.node for _, ref in graph.outputs}
    for index in range(len(graph.nodes) - 1, -1, -1):
        if index in needed:
            needed.update(ref.node for ref in graph.nodes[index].operands)
    return needed


def move_refs(node: Node, moved: dict[int, int]) -> Node:
    """The node with its operands renumbered."""
    return replace(node, operands=tuple(Ref(moved[ref.node], ref.output) for ref in node.operands))
