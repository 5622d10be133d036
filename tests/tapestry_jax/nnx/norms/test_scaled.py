"""What normalisation refuses, and what it sends where the axis that it normalises is cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X = np.ones((4, 6, 8), np.float32)


@pytest.mark.parametrize("norm", [tp.nnx.LayerNorm, tp.nnx.RMSNorm, tp.nnx.BatchNorm])
def test_a_negative_epsilon_is_told(norm: type) -> None:
    with pytest.raises(tp.GraphError, match=f"epsilon= of {norm.__name__} is negative"):
        norm(3, epsilon=-1.0, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tp.nnx.GroupNorm(6, 4, rngs=nnx.Rngs(0)), "groups of GroupNorm do not divide the channels"),
        (lambda: tp.nnx.GroupNorm(6, 2, 3, rngs=nnx.Rngs(0)), "GroupNorm is told its groups once"),
        (lambda: tp.nnx.BatchNorm(6, momentum=2.0, rngs=nnx.Rngs(0)), "momentum= of BatchNorm is no share"),
        (lambda: tp.nnx.InstanceNorm(8, rngs=nnx.Rngs(0))(X[0]), "InstanceNorm: the input does not fit"),
        (lambda: tp.nnx.BatchNorm(7, rngs=nnx.Rngs(0))(X), "BatchNorm: the input does not fit"),
    ],
)
def test_norms_that_do_not_fit_are_told(call: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        call()


@pytest.mark.parametrize(("norm", "sums"), [(tp.nnx.LayerNorm, 2), (tp.nnx.RMSNorm, 1)])
def test_what_is_normalised_can_be_cut(norm: Any, sums: int) -> None:
    """One sum of squares, or sums in two rounds: of cells, then around their mean; `x` itself stays where it is."""
    graph = tp.trace(norm(8, rngs=nnx.Rngs(0)), tp.TensorType({"batch": 4, "seq": 6, "embed": 8}))
    mesh = tp.mesh(data=2)
    plan = tp.plan(graph, mesh, {"embed": "data"}, inputs={"x": {"embed": "data"}}, outputs={"y": {"embed": "data"}})
    sent = plan.collectives()
    assert [step.kind for step in sent] == ["all-reduce"] * len(sent)
    assert sum(step.bytes for step in sent) <= 2 * sums * 4 * 6 * 4 + 8 * sums


def test_what_runs_along_has_no_gradient() -> None:
    norm = tp.nnx.BatchNorm(8, momentum=0.5, rngs=nnx.Rngs(0))
    graph, state = tp.trace(norm, X), nnx.state(norm)
    slope = jax.grad(lambda x: sum(map(jnp.sum, jax.tree.leaves(graph(state, x)[1]))))(jnp.asarray(X))
    np.testing.assert_array_equal(slope, 0.0)


@pytest.mark.parametrize("entries", [{}, {"y": "data"}])
def test_an_offset_does_not_take_the_variance(entries: Any) -> None:
    """In two passes, cut or not, what is normalised has the digits of its cells, which are whole numbers beside 1e4."""
    x = np.float32(1e4 + np.random.default_rng(0).integers(-8, 8, (2, 6, 4, 8)))
    norm = tp.nnx.GroupNorm(8, 2, epsilon=0.0, use_fast_variance=False, rngs=nnx.Rngs(0))
    run = tp.plan(
        tp.trace(norm, tp.TensorType({"batch": 2, "y": 6, "x": 4, "channels": 8})), tp.mesh(data=2), entries
    ).compile()
    groups = np.float64(x).reshape(2, 24, 2, 4)
    expected = (groups - groups.mean((1, 3), keepdims=True)) / groups.std((1, 3), keepdims=True)
    np.testing.assert_allclose(run(nnx.state(norm), x), expected.reshape(x.shape), atol=1e-3)


@pytest.mark.parametrize("at", [0, 5])
def test_an_infinite_cell_has_the_statistics_of_flax(at: int) -> None:
    x = np.array(X)
    x[:, at, 0] = np.inf
    ours, theirs = (library.BatchNorm(8, rngs=nnx.Rngs(0)) for library in (tp.nnx, nnx))
    np.testing.assert_array_equal(ours(x), theirs(x))
    np.testing.assert_array_equal(ours.mean[...], theirs.mean[...])


def test_statistics_of_nothing_are_nan_as_in_flax() -> None:
    x = np.ones((0, 6, 8), np.float32)
    norm = tp.nnx.BatchNorm(8, rngs=nnx.Rngs(0))
    norm(x)
    assert np.isnan(norm.mean[...]).all() and np.isnan(norm.var[...]).all()


@pytest.mark.parametrize("kind", ["BatchNorm", "LayerNorm"])
def test_a_norm_takes_the_name_of_what_comes_in(kind: str) -> None:
    """A convolution gives `features`, and a norm holds `channels` or `embed`: they are one dimension, as in Flax."""

    def layers(library: Any) -> Any:
        rngs = nnx.Rngs(0)
        return library.Conv(8, 8, (3,), rngs=rngs), getattr(library, kind)(8, rngs=rngs)

    (conv, norm), (plain, plain_norm) = layers(tp.nnx), layers(nnx)
    x = np.float32(np.random.default_rng(0).standard_normal((4, 6, 8)))
    expected = plain_norm(plain(x))
    types = tp.TensorType({"batch": 4, "x": 6, "channels": 8})
    graph = tp.trace(lambda conv, norm, x: norm(conv(x)), conv, norm, types)
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"batch": "data", "features": "model"})
    found = plan.compile()(nnx.state(conv), nnx.state(norm), x)
    found, written = found if kind == "BatchNorm" else (found, {})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for name, value in written.get("norm", {}).items():
        np.testing.assert_allclose(value[...], getattr(plain_norm, name)[...], rtol=1e-5, atol=1e-6)
