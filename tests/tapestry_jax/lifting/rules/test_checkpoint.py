"""Regions of `jax.checkpoint`: a plan computes them again by their paths, and keeps what JAX keeps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

import tapestry_jax as tp
from tests.thoroughly import but

X, W = np.ones((16, 8), "f4"), np.random.default_rng(0).standard_normal((4, 8, 8)).astype("f4") * 0.1


@jax.checkpoint
def again(x: Any, w: Any) -> Any:
    return jnp.sin(jnp.sin(jnp.sin(x @ w) @ w.T) @ w) @ w.T


def one_by_one(x: Any, w: Any) -> Any:
    for at in range(4):
        x = x + again(x, w[at])
    return x.sum()


def scanned(x: Any, w: Any) -> Any:
    return lax.scan(lambda x, w: (x + again(x, w), None), x, w)[0].sum()


def kept(function: Any) -> int:
    """The bytes that a backward pass is left."""
    saved = jax.eval_shape(lambda x, w: jax.vjp(function, x, w)[1], X, W)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(saved))


@pytest.mark.parametrize("function", but([one_by_one, scanned], one_by_one))
def test_a_plan_that_computes_regions_again_keeps_what_jax_keeps(function: Any) -> None:
    graph, mesh = tp.lift(function, X, W), tp.mesh(a=2)
    remat = {"checkpoint_*": True} if function is one_by_one else True
    plain, whole = (tp.plan(graph, mesh, {}, remat=asked).compile() for asked in (None, remat))
    assert kept(function) <= kept(whole) <= 1.5 * kept(function) < 0.3 * kept(plain)
    run = tp.plan(graph, mesh, {"x_0": "a"}, remat=remat).compile()
    for got, want in zip(jax.grad(run, (0, 1))(X, W), jax.grad(function, (0, 1))(X, W), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_regions_have_paths_of_their_own_and_modules_in_them_keep_theirs() -> None:
    paths = [node.path for node in tp.lift(one_by_one, X, W).nodes]
    assert {"checkpoint_0/dot_general", "checkpoint_3/dot_general"} < set(paths)

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.layer = nnx.Linear(8, 8, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return nnx.remat(lambda layer, x: jnp.sin(layer(x)))(self.layer, x)

    assert not any("checkpoint" in node.path for node in tp.lift(Model(), X).nodes)
