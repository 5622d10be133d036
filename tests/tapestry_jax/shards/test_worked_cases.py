"""Values of the worked cases of Tapestry, from blocks that are run one by one; what they read is in `writing/`."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.shards.examples import abstract_mesh, linear, types

relu = tp.Map(jax.nn.relu)
product = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def integers(seed: int, *shape: int) -> Any:
    """Whole numbers, of which floats lose nothing however they are added up."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)


def test_case_4_of_all_plans_in_four_shards_the_one_along_the_batch_reads_least() -> None:
    of = tp.Map(linear, "batch [in], [in] out, out -> batch out")
    graph = tp.trace(of, *types({"batch": 100, "in": 12}, {"in": 12, "out": 32}, {"out": 32}))
    places: tuple[Any, ...] = (None, "p", "q", ("p", "q"))
    read: dict[tuple[Any, Any], int] = {}
    for entries in itertools.product(places, repeat=2):
        used = [axis for place in entries for axis in ((place,) if isinstance(place, str) else place or ())]
        if sorted(used) == ["p", "q"]:
            plan = tp.plan(graph, abstract_mesh(p=2, q=2), dict(zip(("batch", "out"), entries, strict=True)))
            read[entries] = plan.shards().cells_read()
    # 4 x 1, 1 x 4, and 2 x 2 in two ways.
    assert sorted(read.values()) == [2864, 3232, 3232, 5216]
    assert min(read, key=lambda entries: read[entries]) == (("p", "q"), None)


def test_case_5_two_partial_sums_are_the_product_bit_for_bit() -> None:
    def layer(x, w, b):
        return product(x, w) + b

    args = integers(0, 100, 12), integers(1, 12, 32), integers(2, 32)
    graph = tp.trace(layer, *types({"batch": 100, "in": 12}, {"in": 12, "out": 32}, {"out": 32}))
    shards = tp.plan(graph, abstract_mesh(data=2), {"in": "data"}).shards()
    shards.verify(graph)
    partial = next(piece for piece in shards.program.pieces if piece.partial)
    # [2, 100, 32]: one of each device.
    assert [2, *(own.count for own in partial.box)] == [2, 100, 32]
    np.testing.assert_array_equal(shards.run(*args), args[0] @ args[1] + args[2])


def test_case_5_two_layers_in_shards_of_one_two_two() -> None:
    def layers(x, first, second):
        rows = tp.einsum("a b k, k n -> a b n")
        return relu(rows(relu(rows(x, first)), second))

    args = integers(0, 20, 30, 128), integers(1, 128, 32), integers(2, 32, 8)
    given = types({"a": 20, "b": 30, "in": 128}, {"in": 128, "mid": 32}, {"mid": 32, "out": 8})
    graph = tp.trace(layers, *given)
    shards = tp.plan(graph, abstract_mesh(p=2, q=2), {"b": "p", "in": "q"}).shards()
    shards.verify(graph)
    expected = np.maximum(np.maximum(args[0] @ args[1], 0) @ args[2], 0)
    np.testing.assert_array_equal(shards.run(*args), expected)


RANDOM = [{"n": "q", "m": "p"}, {"m": ("p", "q"), "n": tp.chunks(4)}]
KEY, BLANK = np.array([7, 11], np.uint32), np.zeros((8, 8), np.float32)


def farthest(values: Any, rows: Any, columns: Any) -> Any:
    """The lowest and, negated, the highest indices of values of a half and more."""
    at = jnp.stack([jnp.broadcast_to(index, values.shape) for index in (rows[:, None], columns[None, :])])
    low = jnp.where(values >= 0.5, at, 2**30).min((1, 2))
    return jnp.concatenate([low, jnp.where(values >= 0.5, -at, 2**30).min((1, 2))])


@tp.program
def drawn(key, x):
    numbers = tp.random.uniform(key, like=x)
    around = tp.Reduce(farthest, "n m, @n, @m -> [corner]", tp.monoids.Min, sizes={"corner": 4})
    return numbers, around(numbers)


@pytest.fixture(scope="module")
def unplanned() -> tuple[tp.Graph, Any]:
    """The program, and the numbers that it draws."""
    graph = tp.trace(drawn, tp.TensorType({"k": 2}, jnp.uint32), *types({"n": 8, "m": 8}))
    return graph, np.asarray(jax.tree.leaves(jax.jit(graph)(KEY, BLANK))[0])


@pytest.mark.parametrize("entries", RANDOM)
def test_case_9_the_same_bits_and_the_same_box_under_any_plan(
    entries: dict[str, Any], unplanned: tuple[tp.Graph, Any]
) -> None:
    graph, whole = unplanned
    shards = tp.plan(graph, abstract_mesh(p=2, q=2), entries).shards()
    shards.verify(graph)
    numbers, corners = (np.asarray(each) for each in shards.run(KEY, BLANK))
    assert numbers.tobytes() == whole.tobytes()
    found = np.argwhere(whole >= 0.5)
    assert corners.tolist() == [*found.min(0), *(-found.max(0))]
