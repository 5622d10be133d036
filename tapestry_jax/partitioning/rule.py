"""How shardings pass through a program, as Shardy takes it: one factor for every dimension of one size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from tapestry_jax.partitioning.tensors import Tensors


def sharding_rule(graph: Graph, tensors: Tensors, constants: Sequence[Any] = ()) -> Any:
    """The rule of a program, or of its gradient.

    Operands and results of a program that have a dimension of one name and size are cut alike along it. What operands
    alone have is reduced; what no operation can cut is needed whole. A gradient lies as that of which it is one.

    Args:
      graph: the program.
      tensors: its operands and results, or those of its gradient.
      constants: arrays of the program, which are operands before all others, and are needed whole.
    """
    factors: dict[Any, str] = {}

    def mapped(keys: Iterable[Any]) -> Any:
        return ArrayMapping(*(factors.setdefault(key, f"f{len(factors)}") for key in keys))

    held = tuple(mapped((f"constant {n}", at) for at in range(array.ndim)) for n, array in enumerate(constants))
    whole = [*factors.values()]
    if tensors.of is not None:
        operands = [[(place, at) for at in range(len(kind.shape))] for place, kind in enumerate(tensors.operands)]
        given = tuple(map(mapped, operands))
        made = tuple(mapped(operands[place]) for place in tensors.of.smooth_operands)
        return SdyShardingRule((*held, *given), made, need_replication_factors=tuple(whole))
    given, made = (
        tuple(mapped(zip(kind.names, kind.shape, strict=True)) for kind in kinds)
        for kinds in (tensors.operands, tensors.results)
    )
    cut = cut_anywhere(graph)
    whole += [factor for (name, _), factor in factors.items() if factor not in whole and name not in cut]
    carried = {factor for mapping in made for factor in mapping}
    reduced = tuple(factor for factor in factors.values() if factor not in carried and factor not in whole)
    return SdyShardingRule((*held, *given), made, reduction_factors=reduced, need_replication_factors=tuple(whole))


def cut_anywhere(graph: Graph) -> set[str]:
    """The names of dimensions that some operation can cut."""
    found: set[str] = set()
    for node in graph.nodes:
        match node:
            case Apply():
                told = node.operation.signature
                found |= {name for dim, name in node.names if told.role(dim) != "whole"}
            case Loop():
                found |= cut_anywhere(node.body) | ({node.over} if node.over is not None else set())
            case _:
                pass
    return found
