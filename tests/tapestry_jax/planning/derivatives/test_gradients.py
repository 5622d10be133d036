"""What a policy of rematerialization keeps, who may read no cell of an operand, and which blocks say the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.derivatives.dependence import dependence_in
from tapestry_jax.planning.derivatives.gradients import (
    derivative_dependence,
    derivative_needs,
    known_by,
    maybe_unread,
    telling_sizes,
    traced_states,
    value_dependence,
)
from tapestry_jax.planning.entries.remat import KEPT

X = jax.ShapeDtypeStruct((4, 4), jnp.float32)
STEP = Primitive("step_of_others")
STEP.def_abstract_eval(lambda x, **_: x)


@pytest.mark.parametrize("keeps", KEPT)
@pytest.mark.parametrize("name", ["prim", "_", "params", "args"])
def test_primitives_of_others_have_parameters_of_any_name(keeps: str, name: str) -> None:
    graph = tp.lift(lambda x: jnp.tanh(STEP.bind(x, **{name: 1}) @ x), X)
    found = {
        node.operation.name: known_by(graph, index, KEPT[keeps])
        for index, node in enumerate(graph.nodes)
        if isinstance(node, Apply)
    }
    assert found == {"step_of_others": False, "dot_general": True, "tanh": False}


@pytest.mark.parametrize(
    ("window", "taps", "cells", "unread"),
    [
        ("y+[dy]-1", 2, 1, True),
        ("y+[dy]-1", 2, 2, False),
        ("y+[dy]", 2, 1, True),
        ("y+[dy]", 2, 2, False),
        ("y+[dy]-2", 5, 2, True),
        ("y+[dy]-2", 5, 3, False),
        ("y+[dy]", 1, 1, False),
    ],
)
def test_a_window_may_pass_by_an_axis_that_it_leaves_in_every_place(
    window: str, taps: int, cells: int, unread: bool
) -> None:
    """Before the first cell or behind the last one."""
    reads = tp.Map(
        lambda x: jnp.tanh(x[:, : x.shape[1] - taps + 1]), f"b ({window}) -> b y", sizes={"dy": taps}, boundary="zero"
    )
    graph = tp.trace(reads, tp.TensorType({"b": 2, "y": cells}))
    (node,) = (number for number, each in enumerate(graph.nodes) if isinstance(each, Apply))
    assert maybe_unread(graph, node) == ({0} if unread else set())


BLOCKS = {
    "moments": tp.fold(tp.aggregators.Moments(), "row k col -> row col"),
    "first of the largest": tp.fold(tp.aggregators.ArgMax(), "row k col, @k -> row col"),
    "product": tp.einsum("row k, k col -> row col"),
    "prefixes": tp.Scan(tp.monoids.Sum, "row k col -> row k col", over="k"),
}


def _operation(function: Any, *sizes: dict[str, int]) -> tuple[tp.Graph, int]:
    graph = tp.trace(function, *map(tp.TensorType, sizes))
    return graph, next(number for number, node in enumerate(graph.nodes) if isinstance(node, Apply))


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(
    "block", [*(pytest.param(block, marks=pytest.mark.thorough) for block in ((1, 1), (1, 3))), (2, 3), (2, 1)]
)
def test_a_block_says_what_its_mapped_cells_say_among_all_of_them(name: str, block: tuple[int, int]) -> None:
    """The same dependences as of a program that is traced for the block itself, whatever is folded into it."""
    operands = ({"row": 6, "k": 4}, {"k": 4, "col": 9}) if name == "product" else ({"row": 6, "k": 4, "col": 9},)
    graph, node = _operation(BLOCKS[name], *operands)
    shaped = graph.shaped(node)
    structs = tuple(graph.type_of(ref).struct for ref in graph.nodes[node].operands)
    by_place = dict(zip(("row", "col"), block, strict=True))
    for folded in (1, 2, 4):
        named = {"row": by_place["row"], "col": by_place["col"], "k": folded}
        sizes = {dim: named[graph.nodes[node].bound[dim]] for dim in shaped.sizes}
        own = traced_states(shaped.operation, structs, tuple(sorted(sizes.items()))).jaxpr
        told = traced_states(shaped.operation, structs, telling_sizes(shaped, sizes)).jaxpr
        for alone in (False, True):
            assert dependence_in(told, alone=alone) == dependence_in(own, alone=alone)


def test_blocks_that_differ_in_what_is_mapped_are_traced_once() -> None:
    """One cell, and each number of cells that are folded, are programs of their own."""
    graph, node = _operation(BLOCKS["moments"], {"row": 64, "k": 32, "col": 16})
    shaped = graph.shaped(node)
    (row, fold, column) = (
        dim for name in ("row", "k", "col") for dim in shaped.sizes if _named(graph, node, dim, name)
    )
    told = {
        telling_sizes(shaped, {row: rows, fold: folds, column: columns})
        for rows in (1, 2, 8, 64)
        for columns in (1, 4, 16)
        for folds in (4, 32)
    }
    assert len(told) == 2 * 2 * 2
    assert len({telling_sizes(shaped, {row: 8, fold: n, column: 4}, folded=True) for n in (1, 2, 8, 32)}) == 2


def test_windows_and_scans_are_traced_at_their_own_sizes() -> None:
    window = tp.Map(lambda x: x[:, 1:] - x[:, :-1], "b (y+[dy]) -> b y", sizes={"dy": 2}, boundary="zero")
    for function, sizes, dim in (
        (window, {"b": 8, "y": 6}, "y"),
        (BLOCKS["prefixes"], {"row": 8, "k": 6, "col": 4}, "k"),
    ):
        graph, node = _operation(function, sizes)
        shaped = graph.shaped(node)
        (own,) = (each for each in shaped.sizes if _named(graph, node, each, dim))
        told = dict(telling_sizes(shaped, {**shaped.sizes, own: 3}, folded=True))
        assert told[own] == 3


def _named(graph: tp.Graph, node: int, dim: str, name: str) -> bool:
    return graph.nodes[node].bound.get(dim, dim) == name


def test_a_kernel_is_called_once_for_all_that_is_asked_of_it_and_its_derivatives() -> None:
    called: list[bool] = []

    def kernel(x: Any, y: Any) -> Any:
        called.append(True)
        return jnp.sinh(x) * y

    graph, node = _operation(tp.Map(kernel, "row col, row col -> row col"), *[{"row": 6, "col": 10}] * 2)
    assert value_dependence(graph, node) == ((True, True),)
    before = len(called)
    assert derivative_dependence(graph, node) == ((True, True),)
    needs = [[derivative_needs(graph, node, direction, value) for value in (0, 1)] for direction in (0, 1)]
    assert needs == [[True, True], [True, False]]
    assert not known_by(graph, node, KEPT["dots"])
    assert len(called) == before
