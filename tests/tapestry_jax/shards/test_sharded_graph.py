"""Plans written out as blocks: they are proved, they print, and they give the program again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.index_space.box import Box
from combinators.index_space.cover import exact_cover
from tests.pairs.pair import draw_pair
from tests.pairs.plans import repaired
from tests.tapestry_jax.shards.examples import PLANS, abstract_mesh, plan_of, shards_of, types


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


@pytest.mark.parametrize("seed", ["sweep/149/2", "sweep/263/1", "round2/1409/0"])
def test_false_alarms_are_none_any_more(seed: str) -> None:
    """Chunks beside a pipeline in chunks of the same name; a pipeline that carries nothing; a loop in a deep halo."""
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
