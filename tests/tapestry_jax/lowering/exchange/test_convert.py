"""Changes of layout as they run: they move cells, change none, and so do their gradients."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tapestry_jax.lowering.exchange.convert import convert
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.geometry.layout import Layout, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.way import layout_changes
from tests.simulated.evaluate import simulated
from tests.tapestry_jax.draw import normal

SHAPE = (8, 16)
LAYOUTS = [
    (None, None),
    (("data",), None),
    (None, ("data",)),
    (("model",), ("data",)),
    (("model", "data"), None),
    (None, ("data", "model")),
]


def converted(mesh, source, target):
    """A function of the whole tensor that brings it from one layout to another."""
    shape = MeshShape.of(mesh)
    cuts = [[axes and even_cut(n, axes, shape) for n, axes in zip(SHAPE, way, strict=True)] for way in (source, target)]
    before, after = (Layout(tuple(each)) for each in cuts)
    changes = layout_changes(SHAPE, before, after, after.axes, shape)

    def on_device(piece):
        return convert(piece, changes, Here(shape.axes))

    specs = (PartitionSpec(*way) for way in (source, target))
    return jax.shard_map(on_device, mesh=mesh, in_specs=next(specs), out_specs=next(specs))


@pytest.mark.parametrize("source", LAYOUTS, ids=str)
def test_a_tensor_is_the_same_in_every_layout_and_so_is_its_gradient(mesh2x4, source):
    tensor, weights = normal(*SHAPE), normal(*SHAPE, seed=1)
    for target in LAYOUTS:
        function = converted(mesh2x4, source, target)

        def both(x, cotangent, function=function):
            found, back = jax.vjp(function, x)
            return found, back(cotangent)[0]

        found, back = simulated(both, tensor, weights)
        np.testing.assert_array_equal(found, tensor, err_msg=f"{source} -> {target}")
        np.testing.assert_array_equal(back, weights, err_msg=f"gradient of {source} -> {target}")
