"""Whether the program of some blocks is a given one; the first operation that differs where it is not."""

from __future__ import annotations

from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Rename, needed_nodes
from combinators.graphs.walk import operations
from tapestry_jax.shards.blocks_at import families
from tapestry_jax.shards.parts import Program, Shared

REMEDY = "Compare with the graph that it was planned for, or write it again: plan.shards()."


def check_operations(shared: Shared, program: Program, graph: Graph) -> None:
    """Every block applies an operation that the program has.

    Raises:
      PlanError: naming the first that does not.
    """
    known = {node.operation for _, node in operations(graph)}
    for _, step, _ in families(program):
        if shared.operations[step.operation] not in known:
            told = f"got {shared.operations[step.operation]}"
            raise PlanError(
                message(f"`{step.path}` applies an operation that the program does not have", told, remedy=REMEDY)
            )


def check_same(found: Graph, graph: Graph) -> None:
    """Two graphs are equal by key, and take and give arrays in the same structures, which keys leave out.

    Raises:
      PlanError: with the first operation, or the structure, that differs.
    """
    if found.key != graph.key:
        what, *lines = _difference(found, graph) or ["the wiring of the outputs differs"]
        raise PlanError(message(f"these are blocks of another program: {what}", *lines, remedy=REMEDY))
    for what, got, wanted in (
        ("arguments", found.in_tree, graph.in_tree),
        ("results", found.out_tree, graph.out_tree),
    ):
        if got != wanted:
            told = f"expected {wanted!s:.300}", f"got {got!s:.300}"
            raise PlanError(message(f"`{graph.name}` has {what} in another structure", *told, remedy=REMEDY))
    _check_named(found, graph)


def _check_named(found: Graph, graph: Graph) -> None:
    """What can be observed by a name is the same value: of keys, names are no part."""
    wanted = _values_by_name(graph)
    for name, value in _values_by_name(found).items():
        if wanted.get(name, value) != value:
            told = f"expected value {wanted[name]} of the program, got {value}"
            raise PlanError(message(f"`{name}` names another value than in the program", told, remedy=REMEDY))


def _values_by_name(graph: Graph) -> dict[str, tuple[int, int]]:
    place = {node: number for number, node in enumerate(_needed(graph))}
    return {name: (place[ref.node], ref.output) for name, ref in graph.named if ref.node in place}


def check_structures(program: Program) -> None:
    """Arguments and results have as many places in their structures as there are.

    Raises:
      PlanError: naming the program.
    """
    for what, tree, count in (
        ("arguments", program.in_tree, len(program.takes)),
        ("results", program.out_tree, len(program.outputs)),
    ):
        if tree.num_leaves != count:
            told = f"expected {count}, got {tree.num_leaves} in {tree!s:.300}"
            raise PlanError(message(f"`{program.name}` has other {what} than its structure", told, remedy=REMEDY))


def _difference(found: Graph, graph: Graph) -> list[str] | None:
    left, right = (_needed(each) for each in (found, graph))
    for one, other in zip(left, right, strict=False):
        mine, theirs = found.nodes[one], graph.nodes[other]
        where = f"`{theirs.path}`"
        if type(mine) is not type(theirs):
            return [f"{where} is of another kind", f"{type(mine).__name__}, expected {type(theirs).__name__}"]
        kinds = [f"{', '.join(map(str, each.results))}" for each in (mine, theirs)]
        if [each.struct for each in mine.results] != [each.struct for each in theirs.results]:
            return [f"{where} has another type", f"blocks make {kinds[0]}", f"the program {kinds[1]}"]
        if (
            isinstance(mine, Apply)
            and isinstance(theirs, Apply)
            and mine.operation.fingerprint != theirs.operation.fingerprint
        ):
            return [
                f"{where} is another operation",
                f"blocks apply {mine.operation}",
                f"the program {theirs.operation}",
            ]
        wires = [
            [_name(each, ref.node, ref.output) for ref in node.operands]
            for each, node in ((found, mine), (graph, theirs))
        ]
        if wires[0] != wires[1]:
            return [f"{where} reads other tensors", f"blocks read {wires[0]}", f"the program {wires[1]}"]
        if isinstance(mine, Rename) and isinstance(theirs, Rename) and mine.names != theirs.names:
            return [f"{where} renames otherwise", f"{mine.names}, expected {theirs.names}"]
        if isinstance(mine, Apply) and isinstance(theirs, Apply) and dict(mine.names) != dict(theirs.names):
            return [f"{where} binds its dimensions to other names", f"{mine.names}, expected {theirs.names}"]
        if isinstance(mine, Loop) and isinstance(theirs, Loop):
            if mine.length != theirs.length:
                return [f"{where} turns another number of times", f"{mine.length}, expected {theirs.length}"]
            if mine.body.key != theirs.body.key:
                return _difference(mine.body, theirs.body) or [f"{where} has another body"]
    if len(left) != len(right):
        more = (found, left) if len(left) > len(right) else (graph, right)
        node = more[0].nodes[more[1][min(len(left), len(right))]]
        return [f"`{node.path}` is {'made up' if len(left) > len(right) else 'left out'}"]
    return None


def _needed(graph: Graph) -> list[int]:
    needed = needed_nodes(graph)
    return [index for index, node in enumerate(graph.nodes) if index in needed or isinstance(node, Input)]


def _name(graph: Graph, node: int, output: int) -> str:
    place = _needed(graph).index(node)
    return f"{graph.nodes[node].path}#{place}.{output}"
