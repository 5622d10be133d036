"""The checker can fail: planted mutants of the lowering, of the prediction and of the compiled text are noticed."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import tapestry_jax as tp
from tapestry_jax.lowering import program
from tapestry_jax.lowering.exchange import collectives as native
from tapestry_jax.plan import Plan
from tests import classes
from tests.contract import assert_contract, assert_exports, assert_same
from tests.tapestry_jax.draw import normal

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
ARGS = (normal(8, 6), normal(6, 5, seed=1))


@pytest.fixture
def plan(mesh2x4):
    graph = tp.trace(tp.program("b e, e f -> b f")(lambda x, w: matmul(x, w)), *ARGS)
    return tp.plan(graph, mesh2x4, {"b": "data", "e": "model"})


def test_the_plan_as_it_is_holds(plan):
    assert_contract(plan)
    assert_same(plan, ARGS)


def test_a_sum_that_is_left_out_is_noticed(plan, monkeypatch):
    # Each device keeps its partial sum, made equal in type by a maximum: one all-reduce of the same bytes.
    monkeypatch.setitem(native.NATIVE, "sum", lambda value, axes: lax.pmax(lax.stop_gradient(value), axes))
    assert_contract(plan, grad=False)
    with pytest.raises(AssertionError, match="y, forward"):
        assert_same(plan, ARGS, grad=False)


def test_a_collective_that_is_not_predicted_is_noticed(plan, monkeypatch):
    def twice(value, axes):
        total = lax.psum(value, axes)
        return total + 0 * lax.pmax(jnp.max(lax.stop_gradient(total)), ("data",))

    monkeypatch.setitem(native.NATIVE, "sum", twice)
    with pytest.raises(AssertionError, match="forward: predicted all-reduce over model: 80 B\n"):
        assert_contract(plan, grad=False)


def test_a_prediction_that_misses_one_is_noticed(plan, monkeypatch):
    predicted = Plan.collectives
    monkeypatch.setattr(Plan, "collectives", lambda self, grad=False: predicted(self, grad)[:-1])
    with pytest.raises(AssertionError, match="forward: predicted nothing"):
        assert_contract(plan, grad=False)


@pytest.mark.parametrize("change", [{"bytes": 79}, {"times": 2}, {"axes": ("data",)}, {"kind": "all-gather"}], ids=str)
def test_a_prediction_that_is_wrong_is_noticed(plan, monkeypatch, change):
    predicted = Plan.collectives

    def wrong(self, grad=False):
        first, *others = predicted(self, grad)
        return (replace(first, **change), *others)

    monkeypatch.setattr(Plan, "collectives", wrong)
    with pytest.raises(AssertionError, match="compiled all-reduce over model: 80 B"):
        assert_contract(plan, grad=False)


def test_a_gradient_that_is_not_summed_is_noticed(plan, monkeypatch):
    # The values stay right; what the backward pass should add up is lost.
    vary = program.vary

    def detached(value, axes):
        return lax.stop_gradient(vary(value, axes))

    monkeypatch.setattr(program, "vary", detached)
    assert_same(plan, ARGS, grad=False)
    with pytest.raises(AssertionError, match="gradient by x"):
        assert_same(plan, ARGS)
    with pytest.raises(AssertionError, match="with the gradient: predicted"):
        assert_contract(plan)


def test_a_wrong_reference_is_noticed(plan):
    with pytest.raises(AssertionError, match="unplanned"):
        assert_same(plan, ARGS, grad=False, reference=lambda x, w: x @ w + 1)


def test_a_program_that_lowers_for_no_other_platform_is_noticed(mesh8):
    def host(x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")

    graph = tp.trace(tp.Map(host, "a -> a"), tp.TensorType({"a": 8}, jnp.float32))
    with pytest.raises(NotImplementedError):
        assert_exports(tp.plan(graph, mesh8, {"a": "data"}))


def test_what_is_predicted_forwards_alone_is_noticed_where_nothing_is_compiled_forwards(plan, monkeypatch):
    assert_contract(plan)
    predicted = Plan.collectives
    for wrong in ({"bytes": 84}, {"backward": True}):

        def damaged(self, grad=False, wrong=wrong):
            found, is_meant = predicted(self, grad), (grad is False) == ("bytes" in wrong)
            return tuple(replace(each, **wrong) for each in found) if is_meant else found

        monkeypatch.setattr(Plan, "collectives", damaged)
        again = tp.plan(plan.graph, plan.mesh, {"b": "data", "e": "model"})
        with pytest.raises(AssertionError, match="predicted forwards"):
            assert_contract(again)


def test_the_first_plan_of_a_class_is_compiled_forwards(plan, monkeypatch):
    monkeypatch.setattr(classes, "_MET", {})
    monkeypatch.delenv("TAPESTRY_THOROUGH", raising=False)

    @jax.custom_jvp
    def wrong(value):
        return value + 1

    wrong.defjvp(lambda given, along: (given[0], along[0]))
    # Where it is differentiated the sum is right.
    monkeypatch.setitem(native.NATIVE, "sum", lambda value, axes: wrong(lax.psum(value, axes)))
    with pytest.raises(AssertionError, match="y, forward"):
        assert_same(plan, ARGS)


def test_sums_over_two_mesh_axes_are_another_class_than_over_one(mesh2x4, monkeypatch):
    monkeypatch.setattr(classes, "_MET", {})
    monkeypatch.delenv("TAPESTRY_THOROUGH", raising=False)
    graph = tp.trace(matmul, tp.TensorType({"i": 8, "k": 8}), tp.TensorType({"k": 8, "n": 5}))
    one, two = (tp.plan(graph, mesh2x4, {"k": axes}) for axes in ("model", ("data", "model")))
    kinds = [classes.sending(each.compile().jaxpr().jaxpr) for each in (one, one, two, two)]
    assert [classes.is_new("forwards", each) for each in kinds] == [True, False, True, False]
