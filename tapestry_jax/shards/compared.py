"""Whether the program of some blocks is a given one; the first operation that differs where it is not."""

from __future__ import annotations

from combinators.errors import PlanError, message
from combinators.graphs.difference import counted_nodes, first_difference
from combinators.graphs.graph import Graph
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
        what, *lines = first_difference(found, graph, ("the blocks", "the program"))
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
    place = {node: number for number, node in enumerate(counted_nodes(graph))}
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
