"""Gradients that have met the same on their ways may be equal, and are then sent once; those that have not are not."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.pairs.contract import differences, verdict

X = tp.TensorType({"a": 4, "b": 8}, jnp.float32)
turned = tp.Map(lambda v: v[::-1] * 2.0, "[a] b -> [a] b", name="turned")
tanh = tp.Map(jnp.tanh)
ENTRIES = {"a": "model", "b": "data"}


def backward(plan):
    """Whether each thing that the gradient sends is a bound."""
    return [found.bound for found in plan.collectives(True) if found.backward]


@pytest.mark.parametrize(
    ("program", "bounds"),
    [
        (lambda a, b, s: turned(a) * s + turned(b) * s, {True}),
        (lambda a, b, s: turned(a) * s + (turned(b) + s) * s, {True}),
        (lambda a, b, s: turned(a) * s + turned(b) * tanh(s), {False}),
        (lambda a, b, s: (turned(a) * s, turned(b) * s), {False}),
    ],
    ids=["one factor", "one factor behind a sum", "two factors", "two outputs"],
)
def test_gradients_that_are_multiplied_by_one_value_may_be_equal(mesh2x4, program, bounds):
    """Once 128 predicted and 64 compiled without a word, where two operands are multiplied by one value."""
    plan = tp.plan(tp.trace(program, X, X, X), mesh2x4, ENTRIES)
    assert set(backward(plan)[:2]) == bounds
    assert verdict(differences(plan, True)) == ("bound" if bounds == {True} else "equal")


def test_gradients_of_what_a_loop_captures_may_be_equal(mesh2x4):
    def step(c, u, v, w):
        return tanh(c) + turned(u) * w + turned(v) * w

    graph = tp.trace(lambda a, b, s: tp.iterate(step, 3)(s, a, b, s), X, X, X)
    plan = tp.plan(graph, mesh2x4, {"b": "model"}, inputs={name: {"a": "model"} for name in ("a", "b")})
    # What is changed before the loop is told apart from what is carried, by what its gradient meets inside.
    assert backward(plan).count(True) >= 2
    assert verdict(differences(plan, True)) in ("equal", "bound")


def test_gradients_that_differ_by_a_layer_are_not_taken_for_equal(mesh8):
    """The biases of two layers, each stored in pieces: the gradient of the first goes through the second layer, too."""
    bias, rows = tp.TensorType({"b": 8}, jnp.float32), tp.TensorType({"a": 8, "b": 8}, jnp.float32)
    added = tp.Map(jnp.add, "a b, b -> a b")
    graph = tp.trace(lambda x, first, second: added(tanh(added(x, first)), second), rows, bias, bias)
    plan = tp.fsdp(tp.plan(graph, mesh8, {"a": "data"}), "data", smallest=1)
    assert backward(plan) == [False, False]
    assert verdict(differences(plan, True)) == "equal"
