"""Where a dimension of an operation goes: what may be cut and why not, and which of several entries says so."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from combinators.graphs.scopes import is_inside
from tapestry_jax.planning.entries.placement import Placer, why_whole
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
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


def test_of_many_exceptions_the_longest_scope_around_a_path_holds():
    chance = random.Random(0)
    names = ["a", "ab", "b", "0", "a.0"]
    paths = ["/".join(chance.choices(names, k=chance.randint(1, 4))) for _ in range(300)]
    items = [(), ("data",), ("model",), ("data", "model")]
    mesh = MeshShape.of(AbstractMesh((2, 2), ("data", "model")))
    for _ in range(20):
        scopes = list(dict.fromkeys(chance.choices(paths, k=60)))
        ops = tuple((scope, ((chance.choice("xy"), chance.choice(items)),)) for scope in scopes)
        placer = Placer(mesh, (("x", ("data",)),), ops)
        for path in paths:
            holds = [own for own in ops if own[1][0][0] == "x" and (path == own[0] or path.startswith(f"{own[0]}/"))]
            expected = max(holds, key=lambda own: len(own[0]), default=("", (("x", ("data",)),)))
            assert placer.asked("x", path) == expected[1][0][1]
            assert placer.is_free("y", path) == (not any(d == "y" and is_inside(path, s) for s, ((d, _),) in ops))
