"""The order in which XLA for GPUs runs a program: it is made from the end, and what waits for collectives comes late.

Of the kernels that nobody else waits for, the one behind the most collectives is taken first, and so runs last; of
alike ones the last of the program. Between a collective's end and its beginning stand some kernels, while it is on
its way: what only an output reads runs there, late, and what it reads stays until then. A loop that sends, too, is none
of these kernels: what is read behind it is sent behind it.

Source: XLA, `xla/service/latency_hiding_scheduler.cc`: its approximate estimator lets five loops hide a collective.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from tapestry_jax.memory.buffers import Buffers
from tapestry_jax.memory.compilers.order import place
from tapestry_jax.memory.primitives import is_collective
from tapestry_jax.memory.program import Node, Program

_HIDDEN = 5
"""So many kernels run while a collective is on its way."""


def scheduled(program: Program) -> Program:
    """The same program in that order; in loops and branches too."""
    nodes = [
        replace(node, bodies=tuple(map(scheduled, node.bodies))) if node.bodies else node for node in program.nodes
    ]
    program = replace(program, nodes=tuple(nodes))
    buffers = Buffers(program, (out for out in program.outputs if out is not None))
    makers = {result: at for at, node in enumerate(nodes) for result in node.results}
    kernels = [at for at, node in enumerate(nodes) if not buffers.own.isdisjoint(node.results)]
    reads = {at: {makers[number] for number in buffers.read(at) if number in makers} - {at} for at in kernels}
    order: list[Node] = []
    placed: set[int] = set()
    for at in (*reversed(_from_the_end(nodes, reads)), *range(len(nodes))):
        place(program, at, makers, placed, order)
    return replace(program, nodes=tuple(order))


def _from_the_end(nodes: Sequence[Node], reads: Mapping[int, set[int]]) -> list[int]:
    """The places of kernels, the one that runs last first."""
    behind: dict[int, int] = {}
    for at, before in reads.items():
        behind[at] = max((behind[each] for each in before), default=0) + is_collective(nodes[at].name)
    users = Counter(before for read in reads.values() for before in read)
    ready = [(-behind[at], -at) for at in reads if not users[at]]
    heapify(ready)
    order: list[int] = []
    # Collectives whose end was taken, and when their beginning may be.
    on_the_way: deque[tuple[int, int]] = deque()
    ticks = 0

    def take(at: int) -> None:
        order.append(at)
        for before in reads[at]:
            users[before] -= 1
            if not users[before]:
                heappush(ready, (-behind[before], -before))

    while ready or on_the_way:
        while on_the_way and (on_the_way[0][0] <= ticks or not ready):
            take(on_the_way.popleft()[1])
        if not ready:
            continue
        at = -heappop(ready)[1]
        if is_collective(nodes[at].name):
            on_the_way.append((ticks + _HIDDEN, at))
            continue
        if on_the_way and _sends(nodes[at].bodies):
            # What is on its way does not pass a loop that sends as well: it begins behind it.
            while on_the_way:
                take(on_the_way.popleft()[1])
            heappush(ready, (-behind[at], -at))
            continue
        take(at)
        ticks += 1
    return order


def _sends(bodies: Sequence[Program]) -> bool:
    """Whether devices exchange anything in one of these."""
    return any(is_collective(node.name) or _sends(node.bodies) for body in bodies for node in body.nodes)
