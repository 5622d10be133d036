"""Ranges and trees that follow from the plan alone."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.cluster.ranges import merged_in_order, ranges


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 64])
def test_leaves_are_merged_in_order_once_each_in_one_tree(count: int) -> None:
    asked: list[int] = []
    tree = merged_in_order(count, lambda at: asked.append(at) or str(at), lambda a, b: f"({a} {b})")
    assert asked == [*range(count)]
    assert tree.replace("(", "").replace(")", "").split() == [*map(str, range(count))]
    # More leaves behind leave a whole tree on the left as it is.
    whole = merged_in_order(1 << (count - 1).bit_length(), str, lambda a, b: f"({a} {b})")
    longer = merged_in_order((1 << (count - 1).bit_length()) + 1, str, lambda a, b: f"({a} {b})")
    assert longer.startswith(f"({whole} ")


@pytest.mark.parametrize(("rows", "size", "count"), [(7, 4, 2), (64, 1, 64), (130, 1, 44), (1000, 128, 8)])
def test_ranges_take_every_turn_once(rows: int, size: int, count: int) -> None:
    total = tp.fold(tp.aggregators.Sum(), "row c -> c")
    job = tp.stream(total, {"row": tp.chunks(size=size)}, np.zeros((rows, 2), np.float32))
    (part,) = job.split.passes
    found = ranges(part)
    assert [turn for begin, stop in found for turn in range(begin, stop)] == [*range(part.turns)]
    assert len(found) == count


def test_ranges_of_maps_make_no_more_than_fits() -> None:
    doubled = tp.Map(lambda a: a * 2)
    source = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 14, 1 << 14), (0, 0))
    graph = tp.trace(doubled, tp.TensorType({"row": 1 << 14, "c": 1 << 14}, "float32"))
    job = tp.stream(graph, {"row": tp.chunks(size=64)}, source)
    (part,) = job.split.passes
    # 256 turns of 4 MiB: four of them by their number, sixteen at most by what they make.
    assert {stop - begin for begin, stop in ranges(part)} == {4}
    job = tp.stream(graph, {"row": tp.chunks(size=2048)}, source)
    assert {stop - begin for begin, stop in ranges(*job.split.passes)} == {1}
