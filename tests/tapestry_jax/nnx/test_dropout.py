"""Dropout: the same cells on every mesh, other ones at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X = np.arange(1.0, 1 + 8 * 6 * 16, dtype=np.float32).reshape(8, 6, 16)
TYPES = tp.TensorType({"batch": 8, "seq": 6, "embed": 16}), tp.TensorType({}, np.int32)


def test_cells_are_the_same_on_every_mesh_and_others_at_every_step() -> None:
    layer = tp.nnx.Dropout(0.25, rngs=nnx.Rngs(0))
    y, state = layer(X, np.int32(3)), nnx.state(layer)
    kept = np.asarray(y) != 0
    np.testing.assert_allclose(y, np.where(kept, X / 0.75, 0), rtol=1e-6)
    assert abs(kept.mean() - 0.75) < 0.05
    graph = tp.trace(layer, *TYPES)
    for entries in ({"batch": "data", "embed": "model"}, {"seq": ("model", tp.chunks(3))}):
        run = tp.plan(graph, tp.mesh(data=2, model=2), entries).compile()
        np.testing.assert_array_equal(run(state, X, np.int32(3)), y)
    assert (np.asarray(run(state, X, np.int32(4))) != 0).tolist() != kept.tolist()


def test_cells_fare_alike_along_a_dimension() -> None:
    layer = tp.nnx.Dropout(0.5, broadcast_dims=("seq",), rngs=nnx.Rngs(0))
    kept = np.asarray(layer(X, np.int32(0))) != 0
    image = tp.nnx.Dropout(0.5, rngs=nnx.Rngs(0))(X.reshape(2, 4, 2, 3, 16), np.int32(0))  # axes without names
    assert 0.3 < (np.asarray(image) != 0).mean() < 0.7
    assert (kept == kept[:, :1]).all() and 0.3 < kept.mean() < 0.7


@pytest.mark.parametrize(("rate", "deterministic"), [(0.0, False), (0.5, True)])
def test_nothing_is_dropped_as_in_flax(rate: float, deterministic: bool) -> None:
    ours, theirs = (kind(rate, deterministic=deterministic, rngs=nnx.Rngs(0)) for kind in (tp.nnx.Dropout, nnx.Dropout))
    np.testing.assert_array_equal(ours(X, *([] if deterministic else [np.int32(1)])), theirs(X))


def test_all_is_dropped_without_what_is_no_number() -> None:
    assert not np.asarray(tp.nnx.Dropout(1.0, rngs=nnx.Rngs(0))(np.full((2, 3), np.inf), np.int32(1))).any()


@pytest.mark.parametrize(
    ("options", "operands", "told"),
    [
        ({"rate": 1.5}, (), "rate= of Dropout is no share"),
        ({"rate": 0.5, "broadcast_dims": ("x",)}, (X, np.int32(1)), "Dropout: the input has no `x`"),
    ],
)
def test_what_dropout_cannot_do_is_told(options: Any, operands: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        tp.nnx.Dropout(**options, rngs=nnx.Rngs(0))(*operands)


def test_calls_are_counted_where_no_step_is_given() -> None:
    layer, x = tp.nnx.Dropout(0.5, rngs=nnx.Rngs(0)), np.ones((6, 8), np.float32)
    run = tp.plan(tp.trace(layer, tp.TensorType({"b": 6, "c": 8})), tp.mesh(data=2), {"b": "data"}).compile()
    planned, written = run(nnx.state(layer), x)
    first, second = layer(x), layer(x)
    np.testing.assert_array_equal(planned, first)
    np.testing.assert_array_equal(first, layer(x, np.int32(0)))
    assert written["rngs"]["count"][...] == 1 and layer.rngs.count[...] == 2 and not np.array_equal(first, second)
