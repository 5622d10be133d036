"""How states meet that no collective merges: every device once, in order, by the cheapest route."""

from __future__ import annotations

import math
import time

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.planning.folding import ordered
from tapestry_jax.planning.folding.ordered import tree_axes, tree_distances, tree_rounds
from tapestry_jax.planning.geometry.halo import permuted_axes
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


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


@pytest.mark.parametrize("sizes", [(1,), (2,), (7,), (8,), (4, 3), (3, 4), (2, 5, 3), (6, 2, 2), (5, 1, 9), (12, 7)])
def test_the_axes_of_a_round_are_those_of_its_pairs(sizes: tuple[int, ...]) -> None:
    axes, devices = ("a", "b", "c")[: len(sizes)], math.prod(sizes)
    mesh = MeshShape(tuple(zip(axes, sizes, strict=True)))
    rounds = tree_rounds(devices)
    assert len(rounds) == len(tree_distances(devices))
    for distance, pairs in zip(tree_distances(devices), rounds, strict=True):
        assert tree_axes(devices, distance, axes, mesh) == permuted_axes(pairs, axes, mesh)


def test_a_tree_of_very_many_devices_is_not_written_down() -> None:
    mesh = MeshShape((("a", 2**20), ("b", 2**20)))
    began = time.process_time()
    rounds = [tree_axes(2**40, distance, ("a", "b"), mesh) for distance in tree_distances(2**40)]
    assert rounds == [("b",)] * 20 + [("a",)] * 20
    assert time.process_time() - began < 1
