"""What has one right answer: integers, places, the first and the largest, ties, NaN, random bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.gpu.held import normal

pytestmark = pytest.mark.gpu
agg = tp.aggregators

TIED = np.round(normal(97, 3) * 2)
WITH_NAN = np.where(normal(97, 3, seed=1) > 1.2, np.nan, TIED).astype(np.float32)
INTEGERS = {
    name: np.random.default_rng(0).integers(np.iinfo(name).min, np.iinfo(name).max, (97, 3), endpoint=True, dtype=name)
    for name in ("int8", "uint8", "int16", "int32", "uint32")
}
CUTS: dict[str, dict[str, Any]] = {"axis": {"row": "data"}, "chunks": {"row": ("data", tp.chunks(7))}}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("x", [TIED, WITH_NAN], ids=["ties", "NaN"])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin", "TopK"])
def test_places_of_the_largest(kind: str, x: Any, cut: str, mesh: Any) -> None:
    aggregator = agg.TopK(5) if kind == "TopK" else getattr(agg, kind)()
    fold = tp.fold(aggregator, "row col, @row -> col")
    graph = tp.trace(fold, tp.TensorType({"row": 97, "col": 3}))
    plan = tp.plan(graph, mesh, CUTS[cut])
    plan.verify()
    found, expected = plan.compile()(*plan.put(x)), graph(x)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", ["Min", "Max", "MinMax", "First", "Last", "Sum", "Prod", "Count"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_folded_exactly(name: str, kind: str, cut: str, mesh: Any) -> None:
    fold = tp.fold(getattr(agg, kind)(), "row col -> col")
    graph = tp.trace(fold, tp.TensorType({"row": 97, "col": 3}, INTEGERS[name].dtype))
    plan = tp.plan(graph, mesh, CUTS[cut])
    found, expected = plan.compile()(*plan.put(INTEGERS[name])), graph(INTEGERS[name])
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", ["Min", "Max", "MinMax", "First", "Last"])
def test_extrema_of_floats_keep_nan(kind: str, cut: str, mesh: Any) -> None:
    graph = tp.trace(tp.fold(getattr(agg, kind)(), "row col -> col"), tp.TensorType({"row": 97, "col": 3}))
    plan = tp.plan(graph, mesh, CUTS[cut])
    for x in (TIED, WITH_NAN, -WITH_NAN, np.full_like(TIED, -np.inf)):
        jax.tree.map(np.testing.assert_array_equal, plan.compile()(*plan.put(x)), graph(x))


@pytest.mark.parametrize("cut", CUTS)
def test_sums_by_key_and_counts_by_bin(cut: str, mesh: Any) -> None:
    labels, x = np.abs(TIED[:, 0]).astype(np.int32) % 5, normal(97)
    by_key = tp.fold(agg.Sum().by_key(None, 5), "row, row -> ")
    bins = tp.fold(agg.Histogram(8, (-4.0, 4.0)), "row -> ")
    for fold, args in ((by_key, (TIED[:, 1], labels)), (bins, (x,))):
        graph = tp.trace(fold, *(tp.TensorType({"row": 97}, arg.dtype) for arg in args))
        plan = tp.plan(graph, mesh, CUTS[cut])
        jax.tree.map(np.testing.assert_array_equal, plan.compile()(*plan.put(*args)), graph(*args))


@pytest.mark.parametrize("entries", [{"batch": "data"}, {"batch": tp.chunks(4), "embed": tp.chunks(3)}])
def test_random_bits_are_those_of_the_cpu(entries: Any, mesh: Any) -> None:
    @tp.program("batch embed, words -> batch embed, batch embed, batch embed, batch embed")
    def draws(x, key):
        some = tp.random.bernoulli(key, 0.3, like=x)
        return x, tp.random.bits(key, like=x), tp.random.uniform(key, like=x), tp.Map(lambda b: b + 0.0)(some)

    x, key = normal(17, 33), np.asarray(jax.random.key_data(jax.random.key(3)))
    graph = tp.trace(draws, tp.TensorType({"batch": 17, "embed": 33}), tp.TensorType({"words": 2}, np.uint32))
    plan = tp.plan(graph, mesh, entries)
    jax.tree.map(np.testing.assert_array_equal, plan.compile()(*plan.put(x, key)), graph(x, key))


def test_cells_that_are_dropped_are_those_of_the_cpu(mesh: Any) -> None:
    layer = tp.nnx.Dropout(0.25, rngs=nnx.Rngs(0))
    x, state = normal(8, 6, 16), nnx.state(layer)
    graph = tp.trace(layer, tp.TensorType({"batch": 8, "seq": 6, "embed": 16}), tp.TensorType({}, np.int32))
    plan = tp.plan(graph, mesh, {"batch": "data", "seq": tp.chunks(3)})
    found = plan.compile()(*plan.put(state, x, np.int32(3)))
    np.testing.assert_array_equal(found, layer(jnp.asarray(x), np.int32(3)))
