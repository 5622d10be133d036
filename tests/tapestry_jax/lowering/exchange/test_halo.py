"""Exchanges between blocks of two sizes as they run: devices have what they read, and so do gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tapestry_jax.lowering.exchange.halo import exchange_drifting
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.drifting import drifting
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tests.drifts import NOTHING, wanted_cells
from tests.simulated.evaluate import simulated

AXES = ("model", "data")


@pytest.mark.parametrize(
    ("held", "block", "window", "size"),
    [
        (5, 4, Window(0, 3, 1, 32, "valid"), 34),
        (3, 4, Window(-1, 4, 2, 9, "zero"), 17),
        (2, 9, None, 16),
        (17, 2, Window(1, 7, 2, 5, "valid"), 17),
        (4, 3, Window(-5, 9, 3, 8, "zero"), 22),
        (4, 1, Window(3, 1, 1, 4, "valid"), 30),
    ],
    ids=str,
)
def test_devices_have_what_they_read_and_gradients_go_back(mesh2x4, held, block, window, size):
    cut, shape = Cut(AXES, block, window), MeshShape.of(mesh2x4)
    drift = drifting(Cut(AXES, held), cut, size, 8)

    def on_device(piece):
        return exchange_drifting(piece, 0, drift, cut.extent, AXES, Here(shape.axes))

    spec = PartitionSpec(AXES)
    move = jax.shard_map(on_device, mesh=mesh2x4, in_specs=spec, out_specs=spec)
    # The places behind the axis hold copies of its last cell.
    cells = np.minimum(np.arange(held * 8), size - 1)
    wanted = np.array([wanted_cells(cut, size, device) for device in range(8)])
    weights = np.where(wanted == NOTHING, 0, np.arange(wanted.size).reshape(wanted.shape) + 1.0)

    def both(x, cotangent):
        found, back = jax.vjp(move, x)
        return found, back(cotangent)[0]

    found, back = simulated(both, jnp.asarray(cells + 1.0), jnp.asarray(weights.ravel()))
    found = np.asarray(found).reshape(wanted.shape)
    np.testing.assert_array_equal(found[wanted != NOTHING], wanted[wanted != NOTHING] + 1)
    # What nobody reads is some cell; what lies outside of the axis is zero where the boundary says so.
    assert found.min() >= (0 if window and window.mode == "zero" else 1)
    start = np.arange(8)[:, None] * block + cut.low + np.arange(cut.extent)
    assert not window or window.mode != "zero" or not found[(start < 0) | (start >= size)].any()
    expected = np.zeros(held * 8)
    np.add.at(expected, wanted[wanted != NOTHING], weights[wanted != NOTHING])
    np.testing.assert_allclose(back, expected, rtol=1e-6)
