"""Boxes in the words of planning: the cuts that a schedule had are found again."""

from __future__ import annotations

import pytest

from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.shards.parts import Block, Coordinate, Shared
from tapestry_jax.shards.pricing.cuts import cells_of, cuts_of, mesh_of
from tapestry_jax.shards.writing.layouts import range_of

MESH = MeshShape((("data", 2), ("model", 3)))
SHARED = Shared((Coordinate("data", 2), Coordinate("model", 3), Coordinate("@n:4", 4, "turns")), ())


@pytest.mark.parametrize(
    "cut",
    [
        Cut(("data",), 12),
        Cut(("model", "data"), 4),
        Cut(("data", "@n:4"), 3),
        Cut(("data",), 12, Window(0, 1, 1, 24, "valid", 1, 2)),
        Cut(("data",), 12, Window(0, 1, 1, 24, "periodic", 2, 2, wraps=True)),
    ],
)
def test_a_box_is_cut_as_it_was(cut: Cut):
    box = (("n", range_of(cut, 24, MESH)), ("whole", range_of(None, 5, MESH)))
    block = Block("", 0, 0, (), box, (), (), (), ())
    assert cuts_of(SHARED, block) == {"n": cut} and mesh_of(SHARED) == MESH
    assert cells_of([own for _, own in box]) == cut.extent * 5
