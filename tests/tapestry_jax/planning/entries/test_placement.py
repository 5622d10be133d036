"""Where a dimension of an operation goes: what may be cut and why not, and which of several entries says so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.entries.placement import why_whole
from tests.tapestry_jax.draw import named

MESH = AbstractMesh((2, 4), ("data", "model"))
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def _shaped(arrow, text, *shapes):
    graph = tp.trace(arrow, *named(text, *(np.ones(shape, np.float32) for shape in shapes)))
    return next(graph.shaped(i) for i, node in enumerate(graph.nodes) if isinstance(node, Apply))


def test_why_whole_names_the_reason():
    softmax = _shaped(tp.Map(jax.nn.softmax, "a [c] -> a [c]"), "a c", (2, 3))
    assert why_whole(softmax, "a") is None
    assert why_whole(softmax, "c") == "its kernel sees all of `[c]`"
    split = _shaped(tp.rearrange("(h d) -> h d", h=2), "e", (6,))
    assert why_whole(split, "h") is None
    assert why_whole(split, "d") == "`d` is inner in the composition `(h d)`, of which only the outermost can be cut"


def _flip(x):
    return x[::-1]


def _outer_sum(x, y):
    return x, y


def test_why_whole_of_reversed_axes_and_partial_results():
    flip = _shaped(tp.Map(_flip, "(3-y) -> y", sizes={"y": 4}), "y", (4,))
    assert why_whole(flip, "y") is None
    both = _shaped(tp.Map(_outer_sum, "a, b -> a, b"), "a, b", (4,), (3,))
    assert why_whole(both, "a") == "not every result carries `a`"


def test_exceptions_go_by_the_longest_path():
    @tp.program("b e, e f -> b f")
    def inner(x, w):
        return tp.Map(jnp.tanh)(matmul(x, w))

    def outer(x, w):
        return tp.Map(jnp.sin)(inner(x, w))

    graph = tp.trace(outer, *named("b e, e f", np.ones((8, 6)), np.ones((6, 8))))
    plan = tp.plan(graph, MESH, {"b": "data"}, ops={"inner": {"b": None}, "inner/tanh": {"b": ("data", "model")}})
    cuts = {step.path: dict(step.cuts) for step in plan.schedule.steps if hasattr(step, "cuts")}
    assert {path: {d: c.axes for d, c in found.items()} for path, found in cuts.items()} == {
        "inner/matmul": {},
        "inner/tanh": {"d0": ("data", "model")},
        "sin": {"d0": ("data",)},
    }
