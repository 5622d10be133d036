"""Which operation of a program a scheduled one is: deep halos take several iterations at once, barriers between."""

from __future__ import annotations

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Input, Loop
from tapestry_jax.planning.rewrites.deepen import is_barrier


@dataclass(frozen=True)
class Origin:
    """What a node of a scheduled graph is in the program.

    Attributes:
      node: its number in the program; None for a barrier.
      substep: of the iterations that a turn takes at once, which.
      first: of a loop, its first iteration.
      body: of a loop, the same for its body.
    """

    node: int | None
    substep: int = 0
    first: int = 0
    body: Origins | None = None


@dataclass(frozen=True)
class Origins:
    """The origins of all nodes of a graph, and how many iterations of the program it takes at once."""

    nodes: dict[int, Origin]
    depth: int = 1


def origins(program: Graph, scheduled: Graph) -> Origins:
    """Match the nodes of a scheduled graph with those of its program, in order."""
    own = [index for index, node in enumerate(program.nodes) if not isinstance(node, Input)]
    given = [index for index, node in enumerate(program.nodes) if isinstance(node, Input)]
    found: dict[int, Origin] = {}
    waiting: list[int] = []
    for index, node in enumerate(scheduled.nodes):
        if isinstance(node, Input):
            found[index] = Origin(given[len(found)])
        else:
            waiting.append(index)
    substep, place = 0, 0
    while place < len(waiting):
        index = waiting[place]
        node, wanted = scheduled.nodes[index], program.nodes[own[0]]
        if is_barrier(node) and not is_barrier(wanted):
            found[index] = Origin(None)
            place += 1
            continue
        for number in own:
            place = _match(program, scheduled, number, waiting, place, substep, found)
        substep += 1
    return Origins(found, max(substep, 1))


def _match(
    program: Graph,
    scheduled: Graph,
    number: int,
    waiting: list[int],
    place: int,
    substep: int,
    found: dict[int, Origin],
) -> int:
    """Match one node of the program, which may be two loops of the schedule; returns the place behind it."""
    wanted, first = program.nodes[number], 0
    while True:
        node = scheduled.nodes[waiting[place]]
        body = origins(wanted.body, node.body) if isinstance(wanted, Loop) and isinstance(node, Loop) else None
        found[waiting[place]] = Origin(number, substep, first, body)
        place += 1
        if not isinstance(wanted, Loop) or not isinstance(node, Loop) or body is None:
            return place
        first += node.length * body.depth
        if first >= wanted.length:
            return place
