"""What blocks read, from how they were written: worked cases 3, 4, 5, 7 and 9 of Tapestry, recomputed."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.shards.examples import abstract_mesh, linear, types


def test_matmul_at_an_origin_reads_half_as_much_again() -> None:
    # J [-10:0, 0:5] and K [0:5, 5:12] by quarters: boxes of arrays begin at 0 here.
    product = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
    graph = tp.trace(product, *types({"i": 10, "k": 5}, {"k": 5, "n": 12}))
    assert tp.plan(graph, abstract_mesh(p=1), {}).shards().cells_read() == 110
    shards = tp.plan(graph, abstract_mesh(p=2, q=2), {"i": "p", "n": "q"}).shards()
    assert shards.cells_read() == 220
    blocks = list(shards.blocks())
    assert dict(blocks[3].box) == {"i": (5, 10), "k": (0, 5), "n": (6, 12)}
    assert [box for _, box in blocks[3].reads] == [(((5, 10),), ((0, 5),)), (((0, 5),), ((6, 12),))]


LINEAR = {(1, 1): 1616, (2, 1): 2032, (1, 2): 2816, (2, 2): 3232, (4, 1): 2864, (1, 4): 5216}


@pytest.fixture(scope="module")
def graph() -> tp.Graph:
    of = tp.Map(linear, "batch [in], [in] out, out -> batch out")
    return tp.trace(of, *types({"batch": 100, "in": 12}, {"in": 12, "out": 32}, {"out": 32}))


@pytest.mark.parametrize(("split", "cells"), LINEAR.items())
def test_linear_reads_what_its_split_says(graph: tp.Graph, split: tuple[int, int], cells: int) -> None:
    entries = {name: axis for name, axis, n in zip(("batch", "out"), "pq", split, strict=True) if n > 1}
    shards = tp.plan(graph, abstract_mesh(p=split[0], q=split[1]), entries).shards()
    shards.verify(graph)
    assert shards.cells_read() == cells
    assert shards.count() == math.prod(split)


def test_in_dimension_makes_partial_sums_that_are_merged() -> None:
    product = tp.Reduce(jnp.matmul, "batch in, in out -> batch out", tp.monoids.Sum)
    graph = tp.trace(product, *types({"batch": 100, "in": 12}, {"in": 12, "out": 32}))
    shards = tp.plan(graph, abstract_mesh(data=2), {"in": "data"}).shards()
    shards.verify(graph)
    state = next(piece for piece in shards.program.pieces if piece.partial)
    assert state.partial == ("data",)
    assert [own.count for own in state.box] == [100, 32]
    (merge,) = [step for step in shards.program.steps if type(step).__name__ == "Merge"]
    assert (merge.over, merge.how) == (("data",), "all-reduce")


CONVOLUTION = [
    ({}, 10000),
    ({"b": "p"}, 10000),
    ({"y": "p"}, 12000),
    ({"y": "p", "x": "q"}, 14400),
    ({"o": "p"}, 20000),
]


@pytest.mark.parametrize(("entries", "cells"), CONVOLUTION)
def test_convolution_reads_what_its_windows_overlap(entries: dict[str, str], cells: int) -> None:
    def kernel(x: Any, f: Any) -> Any:
        return sum(
            jnp.einsum("bcyx,oc->boyx", x[:, :, dy : dy + x.shape[2] - 2, dx : dx + x.shape[3] - 2], f[:, :, dy, dx])
            for dy in range(3)
            for dx in range(3)
        )

    conv = tp.Map(kernel, "b [c] (y+[dy]) (x+[dx]), o [c] [dy] [dx] -> b o y x")
    given = types({"b": 100, "c": 1, "y": 10, "x": 10}, {"o": 128, "f": 1, "dy": 3, "dx": 3})
    graph = tp.trace(conv, *given)
    shards = tp.plan(graph, abstract_mesh(p=2, q=2), entries).shards()
    shards.verify(graph)
    filters = sum(math.prod(high - low for ((low, high),) in block.reads[1][1]) for block in shards.blocks())
    assert shards.cells_read() - filters == cells


def test_random_numbers_read_nothing_and_know_where_they_are() -> None:
    noise = tp.program(lambda key, x: x + tp.random.normal(key, like=x))
    graph = tp.trace(noise, tp.TensorType({"k": 2}, jnp.uint32), *types({"n": 12}))
    shards = tp.plan(graph, abstract_mesh(data=4), {"n": "data"}).shards()
    shards.verify(graph)
    block = next(shards.blocks(next(path for path in shards._paths if "normal" in path)))
    assert sum(math.prod(high - low for ((low, high),) in box) for _, box in block.reads) <= 2
