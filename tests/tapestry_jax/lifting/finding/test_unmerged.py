"""Axes that are merged to one and split again keep their names in between."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.lifting.kernels.reshape import Reshape
from tests.tapestry_jax.lifting.agree import agrees, dims, mesh

SOURCE = np.random.default_rng(0)


def draw(*shape: int) -> Any:
    return SOURCE.standard_normal(shape).astype("f4")


def attention(x: Any, q: Any, k: Any, v: Any, heads: int = 4) -> Any:
    """Batch and heads are one axis, as in diffusers, and the mask is repeated for each."""
    batch, seq, embed = x.shape

    def split(w: Any) -> Any:
        apart = (x @ w).reshape(batch, seq, heads, embed // heads).transpose(0, 2, 1, 3)
        return apart.reshape(batch * heads, seq, embed // heads)

    scores = jnp.einsum("bqd,bkd->bqk", split(q), split(k)) * 0.3
    scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool))[None], scores, -1e9)
    out = jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, -1), split(v))
    return out.reshape(batch, heads, seq, embed // heads).transpose(0, 2, 1, 3).reshape(batch, seq, embed)


def reshapes(graph: tp.Graph) -> int:
    """How many of its operations merge or split axes."""
    return sum(isinstance(node, Apply) and isinstance(node.operation.kernel, Reshape) for node in graph.nodes)


@pytest.mark.parametrize(("batch", "seq"), [pytest.param(4, 6, marks=pytest.mark.thorough), (3, 5), (1, 6), (4, 1)])
def test_batch_and_heads_that_are_one_axis_are_cut_each(batch: int, seq: int) -> None:
    weights = [draw(8, 8) * 0.4 for _ in range(3)]
    graph = agrees(attention, draw(batch, seq, 8), *weights, plans=[{}], rtol=1e-4)
    assert graph.opaque() == () and reshapes(graph) == 4  # one for the heads of each of q, k and v, and one back
    if (batch, seq) == (4, 6):
        assert {"attention"} < {node.operation.name for node in graph.nodes if isinstance(node, Apply)}
        agrees(attention, draw(4, 6, 8), *weights, plans=[{"x_0": "a"}], rtol=1e-4)
        named = tp.lift(attention, draw(4, 6, 8), *weights, names={"x": "batch seq embed"})
        assert tp.plan(named, mesh(), {"batch": "a"}).collectives() == ()


def test_rows_and_columns_that_attend_as_one_axis_do_not_merge_batch_and_heads() -> None:
    def image(x: Any, q: Any, k: Any, v: Any) -> Any:
        return attention(x.reshape(4, 6, 8), q, k, v).reshape(4, 2, 3, 8)

    weights = [draw(8, 8) * 0.4 for _ in range(3)]
    graph = agrees(image, draw(4, 2, 3, 8), *weights, plans=[{"x_0": "a"}], rtol=1e-4)
    assert "attention" in {node.operation.name for node in graph.nodes if isinstance(node, Apply)}
    assert tp.plan(graph, mesh(), {"x_0": "a"}).collectives() == ()


X = draw(4, 6, 5)

# What keeps its axes apart: the function, its arguments, and whether it has gradients.
APART: dict[str, Any] = {
    "rows of a batch": (lambda x, w: jnp.tanh(x.reshape(-1, 5) @ w).reshape(4, 6, 7), (X, draw(5, 7)), True),
    "statistics of rows": (
        lambda x: jax.nn.standardize(x.reshape(24, 5), axis=-1).reshape(4, 6, 5),
        (X,),
        True,
    ),
    "with an axis of one cell": (lambda x: jnp.sin(x.reshape(24, 1, 5)).reshape(4, 1, 6, 5), (X,), True),
    "merged twice": (lambda x: jnp.cos(jnp.sin(x.reshape(24, 5)).reshape(120)).reshape(4, 6, 5), (X,), True),
    "in a choice": (
        lambda x: lax.cond(x[0, 0, 0] > -9, lambda x: jnp.sin(x.reshape(24, 5)).reshape(4, 6, 5), lambda x: x, x),
        (X,),
        True,
    ),
    "in a loop": (
        lambda x: lax.scan(lambda c, _: (jnp.sin(c.reshape(24, 5)).reshape(4, 6, 5), None), x, None, length=3)[0],
        (X,),
        True,
    ),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_merged_and_split_again_is_not_merged(name: str) -> None:
    function, arguments, grads = APART[name]
    graph = agrees(function, *arguments, plans=[{"x_0": "a", "x_1": "b"}], grads=grads, rtol=1e-4)
    assert reshapes(graph) == 0 and {"x_0", "x_1"} <= set(dims(graph))


# What needs the merged axis as one: the function, its arguments, and the reshapes that stay.
MERGED: dict[str, Any] = {
    "returned as well": (lambda x: (lambda m: (jnp.sin(m).reshape(4, 6, 5), m))(x.reshape(24, 5)), (X,), 2),
    "added up as well": (lambda x: (lambda m: (jnp.sin(m).reshape(4, 6, 5), m.sum(0)))(x.reshape(24, 5)), (X,), 2),
    "split elsewhere": (lambda x: jnp.sin(x.reshape(24, 5)).reshape(6, 4, 5), (X,), 2),
    "places in it": (lambda x: (x.reshape(24, 5) * jnp.arange(24.0)[:, None]).reshape(4, 6, 5), (X,), 2),
    "beside another": (lambda x, y: (x.reshape(24, 5) + y).reshape(4, 6, 5), (X, draw(24, 5)), 2),
    "sorted along it": (lambda x: jnp.sort(x.reshape(24, 5), 0).reshape(4, 6, 5), (X,), 2),
    "no cells": (lambda x: jnp.sin(x.reshape(-1, 5)).reshape(0, 6, 5), (X[:0],), 2),
}


# These need it as `places in it` does.
ALIKE = ("returned as well", "added up as well", "split elsewhere")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in ALIKE)) for name in MERGED]
)
def test_what_is_needed_as_one_axis_is_merged_as_it_is_written(name: str) -> None:
    function, arguments, count = MERGED[name]
    assert reshapes(agrees(function, *arguments, rtol=1e-4)) == count
