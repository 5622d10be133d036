"""How states meet that no collective merges: every device once, in order, by the cheapest route."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.planning.folding import ordered


@pytest.mark.parametrize("devices", range(1, 20))
def test_tree_merges_every_device_once_and_in_order(devices):
    held = [(device,) for device in range(devices)]
    for pairs in ordered.tree_rounds(devices):
        before = list(held)
        for sender, receiver in pairs:
            held[receiver] = before[sender] + before[receiver]
    assert held[-1] == tuple(range(devices))
    assert len(ordered.tree_rounds(devices)) == (devices - 1).bit_length()


@pytest.mark.parametrize(
    ("carrier", "shape", "devices", "route"),
    [
        # 64 values and indices: one collective of 4 KB.
        (("~0",), (128,), 8, "gather"),
        (("col", "~0"), (1024, 64), 8, "cells"),
        (("~0", "~1"), (512, 512), 8, "tree"),
        # Two devices send less by gathering, however large the states.
        (("~0", "~1"), (512, 512), 2, "gather"),
        # Fewer cells than devices: shares would be mostly padding.
        (("col", "~0"), (2, 1 << 16), 8, "tree"),
    ],
    ids=str,
)
def test_states_meet_by_the_cheapest_route(carrier, shape, devices, route):
    assert ordered.fold_route([carrier], [jax.ShapeDtypeStruct(shape, jnp.float32)], devices) == route
