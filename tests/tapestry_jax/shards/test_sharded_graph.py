"""Plans written out as blocks: what they read, how they print, and the program again; the worked cases of Tapestry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from combinators.index_space.box import Box
from combinators.index_space.cover import exact_cover
from tests.pairs.pair import draw_pair
from tests.pairs.plans import repaired
from tests.tapestry_jax.shards.examples import PLANS, linear, plan_of, shards_of, types


def abstract_mesh(**sizes: int) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


@pytest.mark.parametrize("name", PLANS)
def test_blocks_are_proved_and_give_the_program_again(name: str) -> None:
    plan, shards = plan_of(name), shards_of(name)
    shards.verify(plan.graph)
    assert shards.abstract().key == plan.graph.key
    assert shards.abstract() == plan.graph


@pytest.mark.parametrize("name", PLANS)
def test_blocks_one_by_one_cover_what_operations_compute(name: str) -> None:
    """By enumeration: the boxes of all blocks of an operation tile its index space, redundant indices aside."""
    shards = shards_of(name)
    for step in shards.program.steps:
        if type(step).__name__ != "Block" or any(own.before or own.after for _, own in step.box):
            continue
        boxes = [Box(*zip(*block.box.values(), strict=True)) for block in shards.blocks(step.path)]
        whole = Box.of_shape([own.limit[1] for _, own in step.box])
        assert exact_cover(whole, boxes).is_exact
        assert len(boxes) == shards.count(step.path)


# Worked cases 3, 4, 5, 7 and 9 of Tapestry, recomputed.


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


def test_linear_reads_least_in_four_blocks_along_the_batch() -> None:
    four = {split: cells for split, cells in LINEAR.items() if math.prod(split) == 4}
    assert min(four, key=lambda split: four[split]) == (4, 1)
    assert four[4, 1] == 2864


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


def _text() -> str:
    return str(shards_of("ring"))


def test_print_shows_boxes_as_functions_of_devices_and_turns() -> None:
    text = _text()
    assert "ring along data" in text
    assert "q 2*data:+2" in text
    assert "keys 2*@keys:4~data:+2" in text
    assert "merged along @keys:4~data, turn by turn" in text


def test_repr_counts_blocks() -> None:
    assert repr(shards_of("megatron")).startswith("ShardedGraph(mlp: ")


def test_operations_that_are_not_there_are_refused() -> None:
    with pytest.raises(tp.PlanError, match="has no operation at or below 'nowhere'"):
        list(shards_of("megatron").blocks("nowhere"))
    with pytest.raises(tp.PlanError, match="blocks are proved to compute a graph"):
        shards_of("megatron").verify(3)  # pyright: ignore[reportArgumentType]


def test_blocks_of_another_program_are_told_apart() -> None:
    shards = shards_of("megatron")
    with pytest.raises(tp.PlanError, match="applies an operation that the program does not have"):
        shards.verify(plan_of("halo").graph)
    with pytest.raises(tp.PlanError, match=r"blocks of another program: `x` has another type"):
        shards.verify(plan_of("uneven").graph)


def _pairs() -> Iterator[tuple[str, Any, Any]]:
    for index in range(6):
        for number, (program, placing) in enumerate(draw_pair(f"shards {index}", 4)):
            yield f"shards {index}/{number}", program, placing


def test_random_plans_are_proved_and_give_their_programs_again() -> None:
    seen = 0
    for seed, program, placing in _pairs():
        _, plan, _ = repaired(placing, program.graph, seed)
        if plan is not None:
            shards = plan.shards()
            shards.verify(program.graph)
            assert shards.abstract() == program.graph
            seen += 1
    assert seen > 12


@pytest.mark.parametrize("seed", ["sweep/149/2", "sweep/263/1"])
def test_false_alarms_are_none_any_more(seed: str) -> None:
    """Chunks beside a pipeline in chunks of the same name; a pipeline that carries nothing."""
    program, placing = draw_pair(seed.rpartition("/")[0], 4)[int(seed[-1])]
    _, plan, _ = repaired(placing, program.graph, seed)
    assert plan is not None
    plan.shards().verify(program.graph)


def test_many_blocks_stand_in_few_families() -> None:
    """100,000 blocks of a stack of 96 layers on 512 devices: nothing here grows with their number."""
    up, down = {"layer": 96, "embed": 64, "mlp": 256}, {"layer": 96, "mlp": 256, "embed": 64}

    graph = tp.trace(_deep, *types(up, down, {"batch": 1024, "embed": 64}))
    plan = tp.plan(graph, abstract_mesh(data=64, model=8), {"batch": "data", "mlp": "model"})
    shards = plan.shards()
    shards.verify(graph)
    assert shards.count() > 100_000
    assert len(shards.to_json()) < 20_000


@tp.program("layer embed mlp, layer mlp embed, batch embed -> batch embed")
def _deep(ups: Any, downs: Any, x: Any) -> Any:
    product = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
    return tp.stack(tp.program(lambda x, up, down: x + product(product(x, up), down)), 96)(x, ups, downs)
