"""A copy, a pickle or a replacement of a value of the library computes and communicates as the value itself."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X, W = tp.TensorType({"n": 8, "k": 4}), tp.TensorType({"k": 4, "m": 8})
MESH = jax.sharding.AbstractMesh((2,), ("d",))


def product() -> Any:
    return tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum) >> tp.Map(jax.nn.gelu)


@tp.program
def mlp(x: Any, w: Any) -> Any:
    return product()(x, w)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [copy.copy, copy.deepcopy, pickled]
HOW = pytest.mark.parametrize("how", COPIES, ids=["copy", "deepcopy", "pickle"])


def collectives(graph: Any) -> list[str]:
    return [str(each) for each in tp.plan(graph, MESH, {"k": "d"}).collectives()]


@HOW
def test_a_copied_arrow_is_planned_alike(how: Any) -> None:
    for make in (product, lambda: mlp):
        graph = tp.trace(how(make()), X, W)
        assert collectives(graph) == ["all-reduce over d: 256 B, matmul"]
        assert graph.key == tp.trace(make(), X, W).key


@HOW
def test_a_copied_graph_is_planned_alike(how: Any) -> None:
    graph = tp.trace(product(), X, W)
    assert collectives(how(graph)) == ["all-reduce over d: 256 B, matmul"]
    assert how(graph).key == graph.key


@HOW
@pytest.mark.parametrize("name", ["Sum", "Max", "Any", "LogSumExp", "AttentionState", "Moments", "AffineRecurrence"])
def test_a_copied_monoid_is_the_same(how: Any, name: str) -> None:
    monoid = getattr(tp.monoids, name)
    assert how(monoid) == monoid
    assert how(monoid).native == monoid.native
    assert how(tp.Monoid(0.0, jnp.add)).native == "sum"


@HOW
def test_copied_parts_are_equal(how: Any) -> None:
    leaf = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
    moments = tp.aggregators.Moments() & tp.aggregators.Sum().contramap(jnp.abs)
    for value in (leaf.operation, leaf.operation.signature, X, moments, tp.Dense(jnp.sin, platforms="tpu")):
        assert how(value) == value


def test_replaced_monoids_and_aggregators_follow_their_parts() -> None:
    assert dataclasses.replace(tp.monoids.Sum, name="other").native == "sum"
    plain = tp.Aggregator(jnp.abs, tp.monoids.Sum, lambda state: state)
    squares = dataclasses.replace(plain, lift=jnp.square)
    assert squares.run(jnp.array([1.0, -2.0, 3.0])) == 14


def test_arrays_that_an_arrow_holds_are_copied_with_it() -> None:
    module = tp.nnx.Linear(4, 8, rngs=nnx.Rngs(0))
    arrow = module >> tp.Map(jax.nn.gelu)
    other, x = copy.deepcopy(arrow), jnp.ones((2, 4))
    before = arrow(x)
    module.kernel[...] = jnp.zeros((4, 8))
    np.testing.assert_array_equal(other(x), before)
    assert not np.array_equal(arrow(x), before)


def test_what_cannot_be_pickled_says_so() -> None:
    with pytest.raises(tp.GraphError, match="pickle stores a value of a program"):
        tp.trace(lambda x: pickle.dumps(x), X)
    run = tp.plan(tp.trace(product(), X, W), tp.mesh(d=1), {}).compile()
    assert copy.deepcopy(run) is run
    with pytest.raises(tp.PlanError, match="cannot be pickled"):
        pickle.dumps(run)
