"""The contract on folds of monoids that no collective knows: any number of devices, the order of the mesh."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_holds
from tests.tapestry_jax.draw import named, normal


@pytest.mark.parametrize(
    ("rows", "entries"),
    # Thirteen rows on eight devices: devices with fewer rows than are asked for, and one with none.
    [(16, {"row": "model", "col": "data"}), (13, {"row": ("model", "data")})],
    ids=str,
)
def test_contract_top_k(mesh2x4, rows, entries):
    best = tp.aggregators.TopK(3)
    args = (normal(rows, 5),)
    graph = tp.trace(lambda x: tp.fold(best, "row col, @row -> col")(x), *named("row col", *args))

    def reference(x):
        found = best.reference(np.asarray(x), np.arange(rows))
        return found | {name: np.moveaxis(found[name], 0, -1) for name in ("value", "index")}

    assert_holds(tp.plan(graph, mesh2x4, entries), args, reference=reference)


def test_top_k_with_ties_is_the_same_for_every_plan(mesh8):
    x = jnp.round(normal(21)).at[jnp.asarray([3, 17])].set(jnp.nan)
    best = tp.aggregators.TopK(6)
    graph = tp.trace(lambda x: tp.fold(best, "row, @row -> ")(x), *named("row", x))
    found = tp.plan(graph, mesh8, {"row": "data"}).compile()(x)
    for name, expected in best.reference(np.asarray(x), np.arange(21)).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
