"""What cannot be streamed is refused, with the path of the operation and what would do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError

X = tp.TensorType({"row": 12, "c": 3}, jnp.float32)
ZEROS = np.zeros((12, 3), np.float32)
FOUR = {"row": tp.chunks(size=4)}


def sort(x: Any) -> Any:
    return tp.Map(lambda a: jnp.sort(a, axis=0), "[row] c -> [row] c", name="sort")(x)


def test_stream_refuses_to_sort_what_a_pass_has_made() -> None:
    graph = tp.trace(lambda x: sort(tp.Map(jnp.sin, name="sin")(x)), X)
    with pytest.raises(tp.PlanError, match=r"`sort` cannot be streamed over row\n  it reads a value that a pass has"):
        tp.stream(graph, FOUR, ZEROS)


def test_stream_refuses_an_input_that_is_read_whole_beside_a_pass() -> None:
    graph = tp.trace(lambda x: (tp.fold(tp.aggregators.Sum(), "row c -> c")(x), sort(x)), X)
    with pytest.raises(
        tp.PlanError, match=r"`sort` cannot be streamed over row\n  it reads input 'x', float32\(row=12"
    ):
        tp.stream(graph, FOUR, ZEROS)


def test_stream_refuses_a_product_that_needs_both_sides_whole() -> None:
    product = tp.einsum("row c, other c -> row other", name="gram")
    graph = tp.trace(lambda x: product(x, x.rename(row="other")), X)
    with pytest.raises(tp.PlanError, match=r"`gram` cannot be streamed over row"):
        tp.stream(graph, FOUR, ZEROS)


def test_stream_refuses_stripes() -> None:
    graph = tp.trace(tp.fold(tp.aggregators.Sum(), "row c -> row"), X)
    over = {"row": tp.chunks(size=4), "c": tp.striped("data")}
    with pytest.raises(tp.PlanError, match="a stream reads and writes no stripes"):
        tp.stream(graph, over, ZEROS, mesh=tp.mesh(data=2))


def test_stream_refuses_rings() -> None:
    queries, keys = tp.TensorType({"q": 4, "d": 2}), tp.TensorType({"k": 4, "d": 2})
    graph = tp.trace(tp.einsum("q d, k d -> q"), queries, keys)
    plan = tp.plan(graph, tp.mesh(data=2), {"q": "data", "k": (tp.ring("data"), tp.chunks(2))})
    with pytest.raises(tp.PlanError, match="a stream turns no ring"):
        tp.stream(plan, "k", (np.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32)))


def test_stream_refuses_wrong_sources_sinks_and_dimensions() -> None:
    graph = tp.trace(tp.fold(tp.aggregators.Sum(), "row c -> c"), X)
    with pytest.raises(tp.PlanError, match=r"was traced for other sources\n  x: expected float32\(row=12, c=3\), got"):
        tp.stream(graph, FOUR, ZEROS[:5])
    with pytest.raises(tp.PlanError, match="it has 1 inputs, got 2"):
        tp.stream(graph, FOUR, (ZEROS, ZEROS))
    with pytest.raises(tp.PlanError, match="sources of a stream are named as the inputs"):
        tp.stream(graph, FOUR, {"y": ZEROS})
    with pytest.raises(tp.PlanError, match="has no output 'z'"):
        tp.stream(graph, FOUR, ZEROS, {"z": tp.create("z.npy")})
    same = tp.trace(lambda x: (x, tp.Map(jnp.sin, "row c -> row c")(x)), X)
    with pytest.raises(tp.PlanError, match="the output `y/0` is an input as it is, and needs no sink"):
        tp.stream(same, FOUR, ZEROS, {"y/0": tp.create("z.npy")})
    with pytest.raises(tp.PlanError, match=r"is a path, not what lies there\n  got 'x.npy'\n  Open it: tp.open"):
        tp.stream(graph, FOUR, "x.npy")
    with pytest.raises(tp.PlanError, match=r"JAX has 64 bits off: float64 of an array in memory.*\n  Write jax.config"):
        tp.stream(graph, FOUR, ZEROS.astype("float64"))
    with pytest.raises(StreamError, match="a stream runs on the host, and cannot be traced by JAX"):
        jax.jit(lambda x: tp.stream(graph, FOUR, x).run())(ZEROS)
    with pytest.raises(StreamError, match=r"Run it outside of jax\.jit"):
        jax.jit(lambda x: x + tp.stream(graph, FOUR, ZEROS).run())(ZEROS)
    with pytest.raises(tp.PlanError, match="a stream takes a dimension in chunks"):
        tp.stream(graph, {"row": None}, ZEROS)
    with pytest.raises(tp.PlanError, match="no input with cells has the dimension `rows`"):
        tp.stream(graph, "rows", ZEROS)
