"""The order in which XLA for CPUs runs a program: what can run runs, before what it makes possible."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace

from tapestry_jax.memory.buffers import Buffers
from tapestry_jax.memory.program import Node, Program


def breadth_first(program: Program) -> Program:
    """The same program in the order of XLA's scheduler for CPUs; bodies of loops stay as they are.

    Kernels are taken from a queue; a kernel joins it when the last of those that it reads has run. So a product that
    two others wait for is followed by both, and both of what they read stays. A product that is transposed is made
    anew with its operands exchanged, and so stands behind all others that wait for the same.
    """
    buffers = Buffers(program, (out for out in program.outputs if out is not None))
    makers = {result: at for at, node in enumerate(program.nodes) for result in node.results}
    kernels = [at for at, node in enumerate(program.nodes) if any(result in buffers.own for result in node.results)]
    waits: dict[int, set[int]] = {}
    users: dict[int, list[int]] = defaultdict(list)
    for at in kernels:
        waits[at] = {makers[number] for number in buffers.read(at) if number in makers} - {at}
        for before in waits[at]:
            users[before].append(at)
    anew = _made_anew(program)
    for waiting in users.values():
        waiting.sort(key=lambda at: (at in anew, at))
    ready = deque(at for at in kernels if not waits[at])
    order: list[Node] = []
    placed: set[int] = set()
    while ready:
        at = ready.popleft()
        place(program, at, makers, placed, order)
        for user in users[at]:
            waits[user].discard(at)
            if not waits[user]:
                ready.append(user)
    for at in range(len(program.nodes)):
        place(program, at, makers, placed, order)
    return replace(program, nodes=tuple(order))


def _made_anew(program: Program) -> set[int]:
    """The places of products that only transpositions read, which no other product takes in."""
    readers: dict[int, list[Node]] = defaultdict(list)
    for node in program.nodes:
        for number in node.operands:
            readers[number].append(node)
    return {
        at
        for at, node in enumerate(program.nodes)
        if node.name == "dot_general"
        and (by := readers[node.results[0]])
        and all(reader.name == "transpose" for reader in by)
        and all(last.name != node.name for reader in by for last in readers[reader.results[0]])
    }


def place(program: Program, at: int, makers: dict[int, int], placed: set[int], order: list[Node]) -> None:
    """Append a kernel behind what is computed on the way to it."""
    todo = [at]
    while todo:
        here = todo[-1]
        before = [makers[number] for number in program.nodes[here].operands if number in makers]
        open_ = [each for each in before if each not in placed and each != here]
        if open_:
            todo.extend(open_)
            continue
        todo.pop()
        if here not in placed:
            placed.add(here)
            order.append(program.nodes[here])
