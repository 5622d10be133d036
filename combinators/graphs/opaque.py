"""What of a lifted function no rule knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combinators.frozen import dataclass
from combinators.graphs.walk import operations

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


@dataclass(frozen=True)
class OpaqueOperation:
    """An operation of which nothing is known, so that it takes and gives whole tensors.

    Attributes:
      path: of the operation.
      primitive: what JAX calls it.
      source: the line that it was written in; empty where nothing tells it.
    """

    path: str
    primitive: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}: {self.primitive}" + (f" at {self.source}" if self.source else "")


def opaque_operations(graph: Graph) -> tuple[OpaqueOperation, ...]:
    """The operations whose kernels say so, in order, those of loops too."""
    found: list[OpaqueOperation] = []
    for place, node in operations(graph):
        told = getattr(node.operation.kernel, "opaque", None)
        if told is not None:
            found.append(OpaqueOperation(place.path, *told))
    return tuple(found)
