"""Collectives on their own: NaN wins, derivatives are shared out, positions count in the order that is asked for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tapestry_jax.lowering.exchange.collectives import NATIVE, max_over, min_over, permute_over
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tests.simulated.evaluate import simulated


def over(mesh, axes, function, out=None):
    """`function` of the block of a row that every device along `axes` holds."""
    return jax.shard_map(function, mesh=mesh, in_specs=PartitionSpec(axes), out_specs=PartitionSpec(out))


@pytest.mark.parametrize("extremum", [max_over, min_over])
def test_nan_wins(mesh8, extremum):
    for place in range(8):
        row = np.arange(8, dtype=np.float32) - 4
        row[place] = np.nan
        found = simulated(over(mesh8, ("data",), lambda x: extremum(x, ("data",))), row)
        assert np.isnan(found).all()


def test_those_that_attain_an_extremum_share_its_derivative(mesh8):
    row = np.array([3, 1, 3, 0, 3, 2, 3, -1], np.float32)
    top = over(mesh8, ("data",), lambda x: max_over(x, ("data",)))
    gradient = simulated(jax.grad(lambda x: top(x).sum()), row)
    np.testing.assert_array_equal(gradient, [0.25, 0, 0.25, 0, 0.25, 0, 0.25, 0])


@pytest.mark.parametrize(
    ("kind", "dtype", "reference"),
    [
        ("sum", np.int32, np.sum),
        ("max", np.int32, np.max),
        ("min", np.float32, np.min),
        ("or", np.bool_, np.any),
        ("and", np.bool_, np.all),
    ],
)
def test_native_collectives_are_those_of_numpy(mesh8, kind, dtype, reference):
    for row in ([0, 1, 0, 0, 5, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8], [0] * 8):
        given = np.array(row, dtype)
        found = simulated(over(mesh8, ("data",), lambda x: NATIVE[kind](x, ("data",))), given)
        np.testing.assert_array_equal(found, [reference(given)])


@pytest.mark.parametrize("axes", [("data", "model"), ("model", "data")], ids=str)
def test_pairs_count_along_the_axes_as_they_are_listed(mesh2x4, axes):
    """Everybody sends to the next: a row that lies over `axes`, the outermost first, goes on by one."""
    pairs = [(place, (place + 1) % 8) for place in range(8)]
    shape = MeshShape.of(mesh2x4)
    function = over(mesh2x4, axes, lambda x: permute_over(x, axes, pairs, shape), out=axes)
    np.testing.assert_array_equal(simulated(function, jnp.arange(8)), np.roll(np.arange(8), 1))
