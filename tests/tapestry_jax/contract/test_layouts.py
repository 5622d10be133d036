"""The contract on changes of layout: all-to-all, gathers, slices, compositions, layouts that users pin."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import tapestry_jax as tp
from tests.contract import assert_holds, inside
from tests.tapestry_jax.draw import named, normal


def softmax_rows(x):
    return jax.nn.softmax(x, 0)


rows = tp.Map(softmax_rows, "[a] c -> [a] c")
columns = tp.Map(jax.nn.softmax, "a [c] -> a [c]")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [pytest.param((8, 16), "model", marks=pytest.mark.thorough), ((7, 10), ("model", "data"))],
    ids=str,
)
def test_contract_all_to_all(mesh2x4, shape, axes):
    args = (normal(*shape),)
    plan = tp.plan(tp.trace(columns >> rows, *named("a c", *args)), mesh2x4, {"a": axes, "c": axes})
    assert_holds(plan, args, reference=lambda x: special.softmax(special.softmax(x, 1), 0))
    assert [each.kind for each in inside(plan)] == ["all-to-all"]


@pytest.mark.parametrize("shape", [pytest.param((8, 16), marks=pytest.mark.thorough), (9, 5)])
def test_contract_gather_and_slice(mesh2x4, shape):
    # Columns stay on `data` while rows leave `model`: gathered over one mesh axis, sliced over the other.
    args = (normal(*shape),)
    plan = tp.plan(tp.trace(columns >> rows, *named("a c", *args)), mesh2x4, {"a": "model", "c": "data"})
    assert_holds(plan, args, reference=lambda x: special.softmax(special.softmax(x, 1), 0))
    assert [(each.kind, each.axes) for each in inside(plan)] == [("all-gather", ("model",))]


def test_contract_two_axes_down_to_one(mesh2x4):
    # What is cut by both mesh axes is gathered over the inner one; the outer blocks stay where they are.
    args = (normal(16, 3),)
    first, then = tp.Map(jnp.sin), tp.Map(jnp.tanh)
    graph = tp.trace(lambda x: then(first(x)), *named("a c", *args))
    plan = tp.plan(graph, mesh2x4, {"a": ("data", "model")}, ops={"tanh": {"a": "data"}})
    assert_holds(plan, args, reference=lambda x: np.tanh(np.sin(x)))
    assert [(each.kind, each.axes) for each in plan.collectives()] == [("all-gather", ("model",))]


@pytest.mark.parametrize("heads", [pytest.param(8, marks=pytest.mark.thorough), 5])
def test_contract_composition_is_cut_by_its_outer_part(mesh2x4, heads):
    args = (normal(6, heads * 3),)

    def split(x):
        return tp.rearrange("b (h d) -> h b d", h=heads)(tp.Map(jnp.sin)(x))

    plan = tp.plan(tp.trace(split, *named("b e", *args)), mesh2x4, {"h": "model", "b": "data"})
    assert_holds(plan, args, reference=lambda x: np.sin(x).reshape(6, heads, 3).transpose(1, 0, 2))


def test_contract_composed_result(mesh2x4):
    args = (normal(2, 5, 3),)
    merge = tp.rearrange("h b d -> b (h d)")
    graph = tp.trace(merge, *named("h b d", *args))
    plan = tp.plan(graph, mesh2x4, {"h": "data", "b": "model"})
    assert_holds(plan, args, reference=lambda x: np.asarray(x).transpose(1, 0, 2).reshape(5, 6))


@pytest.mark.parametrize("rows_of_x", [pytest.param(8, marks=pytest.mark.thorough), 7])
def test_contract_one_tensor_under_two_names(mesh2x4, rows_of_x):
    # The rows of `x` are wanted over `data` and, renamed, over `model`.
    args = (normal(rows_of_x, 4),)
    gram = tp.einsum("a k, b k -> a b")
    graph = tp.trace(lambda x: gram(x, x.rename(a="b")), *named("a k", *args))
    plan = tp.plan(graph, mesh2x4, {"a": "data", "b": "model"})
    assert_holds(plan, args, reference=lambda x: np.asarray(x) @ np.asarray(x).T)
    # What is stored whole is sliced for both.
    gathered = [("all-gather", ("data",))] if rows_of_x == 8 else []
    assert [(each.kind, each.axes) for each in inside(plan)] == gathered


def test_contract_pinned_layouts(mesh2x4):
    # The first user wants `x` cut along rows; it is stored along columns, and the result is wanted whole.
    args = (normal(8, 12),)
    graph = tp.trace(columns, *named("a c", *args))
    plan = tp.plan(graph, mesh2x4, {"a": "model"}, inputs={"x": {"c": "model"}}, outputs={"y": {}})
    assert_holds(plan, args, reference=lambda x: special.softmax(x, 1))
    assert [each.kind for each in plan.collectives()] == ["all-to-all", "all-gather"]


def test_contract_pytrees_and_values_that_are_handed_through(mesh2x4):
    args = ({"w": normal(8, 4), "b": normal(4, seed=1)}, normal(5, 8, seed=2))

    def dense(parameters, x):
        y = tp.einsum("n k, k m -> n m")(x, parameters["w"]) + parameters["b"]
        return {"y": y, "same": x, "twice": [y, y]}

    specs = (dict(zip(("w", "b"), named("k m, m", args[0]["w"], args[0]["b"]), strict=True)), named("n k", args[1])[0])
    plan = tp.plan(tp.trace(dense, *specs), mesh2x4, {"n": "data", "k": "model"})

    def reference(parameters, x):
        y = np.asarray(x) @ np.asarray(parameters["w"]) + np.asarray(parameters["b"])
        return {"y": y, "same": x, "twice": [y, y]}

    assert_holds(plan, args, reference=reference)


def test_contract_scalars_and_a_loss(mesh2x4):
    args = (normal(5, 3), normal(5, 3, seed=1), jnp.float32(0.3))

    def loss(x, target, weight):
        error = x - target
        return tp.fold(tp.aggregators.Mean(), "n m -> ")(error * error) * weight

    plan = tp.plan(tp.trace(loss, *named("n m, n m, ", *args)), mesh2x4, {"n": "model", "m": "data"})
    assert_holds(plan, args, reference=lambda x, t, w: np.mean(np.square(np.asarray(x) - np.asarray(t))) * w)
