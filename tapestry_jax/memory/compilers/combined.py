"""Collectives of the same devices that XLA for GPUs sends as one: what they read and give is there at once.

The first one waits for what the last one reads, and all of their results are there together: parameters that are
gathered one by one where each is read come all at once, before the first of them is.

Source: XLA, `xla/service/collective_combiner_utils.h`, and its thresholds in `xla/debug_options_flags.cc`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from tapestry_jax.memory.equations import ALL_REDUCED
from tapestry_jax.memory.program import FUSED, Node, Program, Value

_MOST = 30 * 2**20
"""So many bytes are sent as one at most."""


def combined(program: Program) -> Program:
    """The same program, with collectives that are sent as one; in loops and branches too."""
    nodes = [replace(node, bodies=tuple(map(combined, node.bodies))) if node.bodies else node for node in program.nodes]
    groups = [places for places in _groups(program) if len(places) > 1]
    return _beside(replace(program, nodes=tuple(_ordered(nodes, groups) if groups else nodes)))


def _groups(program: Program) -> list[list[int]]:
    """The places of collectives that are sent as one: as many as fit, of which none waits for another."""
    groups: list[list[int]] = []
    sizes: list[int] = []
    # Of groups, and of values, the groups that they wait for, as bits.
    waits: list[int] = []
    behind: dict[int, int] = {}
    open_: dict[tuple[str, ...], int] = {}
    for at, node in enumerate(program.nodes):
        before = 0
        for number in node.operands:
            before |= behind.get(number, 0)
        if node.group:
            size = sum(program.values[number].bytes for number in node.results)
            own = open_.get(node.group)
            if own is None or sizes[own] + size > _MOST or _all(before, waits) >> own & 1:
                own = open_[node.group] = len(groups)
                groups.append([])
                sizes.append(0)
                waits.append(0)
            groups[own].append(at)
            sizes[own] += size
            waits[own] |= before
            before |= 1 << own
        behind.update(dict.fromkeys(node.results, before))
    return groups


def _all(before: int, waits: Sequence[int]) -> int:
    """Groups, and all that these wait for."""
    found, more = 0, before
    while more:
        found |= more
        reached = 0
        for number in range(more.bit_length()):
            reached |= waits[number] if more >> number & 1 else 0
        more = reached & ~found
    return found


def _ordered(nodes: Sequence[Node], groups: Sequence[Sequence[int]]) -> Iterator[Node]:
    """The same order, but that a group stands where all that it reads is there; what reads it comes behind."""
    makers = {result: at for at, node in enumerate(nodes) for result in node.results}
    leaders = {at: places[0] for places in groups for at in places}
    members = {places[0]: places for places in groups}
    waits: dict[int, set[int]] = {}
    users: dict[int, list[int]] = defaultdict(list)
    for first in dict.fromkeys(leaders.get(at, at) for at in range(len(nodes))):
        read = (number for at in members.get(first, (first,)) for number in nodes[at].operands)
        waits[first] = {leaders.get(at := makers[number], at) for number in read if number in makers}
        for before in waits[first]:
            users[before].append(first)
    ready = [at for at, before in waits.items() if not before]
    while ready:
        first = heappop(ready)
        yield _one([nodes[at] for at in members.get(first, (first,))])
        for user in users[first]:
            waits[user].discard(first)
            if not waits[user]:
                heappush(ready, user)


def _one(nodes: Sequence[Node]) -> Node:
    operands = tuple(number for node in nodes for number in node.operands)
    return replace(nodes[0], operands=operands, results=tuple(number for node in nodes for number in node.results))


def _beside(program: Program) -> Program:
    """What is reduced as one lies side by side: it is copied there, and copied from there."""
    values, nodes = list(program.values), list[Node]()
    for node in program.nodes:
        if not node.name.startswith(ALL_REDUCED) or len(node.results) == 1:
            nodes.append(node)
            continue
        size = sum(values[number].bytes for number in node.results)
        values += [Value(size, f"{values[node.results[0]].text.partition('[')[0]}[{size} bytes]")] * 2
        sent, received = len(values) - 2, len(values) - 1
        nodes.append(Node(FUSED, node.operands, (sent,), node.path, node.backward, library="apart"))
        nodes.append(replace(node, operands=(sent,), results=(received,)))
        nodes += [Node(FUSED, (received,), (each,), node.path, node.backward, library="apart") for each in node.results]
    return replace(program, values=tuple(values), nodes=tuple(nodes))
