"""Which operations share a loop in time, and in what order the loops and all else run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Group:
    """Operations, and further loops, that run as one loop over `axis`."""

    axis: str
    items: tuple[Item, ...]

    @property
    def nodes(self) -> frozenset[int]:
        """All operations inside."""
        return frozenset(nodes_of(self.items))


Item = int | Group

# For a node and a loop: the producers of its operands that are used inside, and whether each flows chunk by chunk.
Edges = Callable[[int, str], Iterator[tuple[int, bool]]]


def nodes_of(items: Sequence[Item]) -> Iterator[int]:
    """All operations of a list of items."""
    for item in items:
        if isinstance(item, Group):
            yield from nodes_of(item.items)
        else:
            yield item


def arrange(
    nodes: Sequence[int],
    axes: Sequence[str],
    uses: Callable[[int, str], bool],
    edges: Edges,
    alone: Collection[int] = (),
) -> list[Item]:
    """Put operations into loops.

    The level of an operation is the largest of its producers', plus one where an edge needs all of the dimension: a
    finished fold, a whole axis, a window, another name. Each level has one loop; what does not have the dimension runs
    before the loop of its level.

    Args:
      nodes: operations in the order of the program.
      axes: loops, outermost first.
      uses: whether an operation is cut by a loop.
      edges: see `Edges`.
      alone: operations that share no loop with others.
    """
    if not axes:
        return list(nodes)
    axis, inner = axes[0], axes[1:]
    level = levels(nodes, axis, uses, edges)
    arranged: list[Item] = []
    for number in range(max(level.values(), default=-1) + 1):
        here = [node for node in nodes if level[node] == number]
        arranged += arrange([node for node in here if not uses(node, axis)], inner, uses, edges, alone)
        looped = [node for node in here if uses(node, axis)]
        together = [node for node in looped if node not in alone]
        for nodes_inside in ([node] for node in looped if node in alone):
            arranged.append(Group(axis, tuple(arrange(nodes_inside, inner, uses, edges, alone))))
        if together:
            arranged.append(Group(axis, tuple(arrange(together, inner, uses, edges, alone))))
    return arranged


def levels(nodes: Sequence[int], axis: str, uses: Callable[[int, str], bool], edges: Edges) -> dict[int, int]:
    """The level of every operation for the loop `axis`."""
    level: dict[int, int] = {}
    for node in nodes:
        level[node] = 0
        for producer, flows in edges(node, axis):
            if producer in level:
                waits = not flows and uses(producer, axis)
                level[node] = max(level[node], level[producer] + waits)
    return level
