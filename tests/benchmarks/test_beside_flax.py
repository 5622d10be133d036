"""Layers and the quickstart's transformer cost what Flax's own cost: counts of compiled programs."""

from __future__ import annotations

import pytest

import tapestry_jax as tp
from benchmarks.beside_flax import CYCLES, PAIRS, measured, table
from benchmarks.costs import collective_bytes
from benchmarks.flax_mesh import BYTES, lowered
from benchmarks.models import Sizes

QUICK = ("Linear", "Conv, 3 x 3", "Conv, 3 x 3, strides 2", "ConvTranspose", "max_pool", "BatchNorm")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in PAIRS]
)
def test_layers_move_as_many_bytes_as_those_of_flax(name: str) -> None:
    found = measured(PAIRS[name], 0)
    for counted in ("flops", "bytes"):
        ours, theirs = found[counted]
        assert ours <= CYCLES * theirs, counted


def test_a_transformer_sends_no_more_than_flax_with_logical_axis_rules() -> None:
    mesh, sizes = tp.mesh(data=2, model=4), Sizes(layers=1, embed=32, heads=4, vocab=64, batch=4, seq=16)
    sent = [
        collective_bytes(lowered(label, "value and gradients", mesh, sizes).compile(), mesh).total()
        for label in ("ours", "flax")
    ]
    assert 0 < sent[0] <= BYTES * sent[1]


def test_the_table_shows_ratios_and_what_has_no_estimate() -> None:
    said = {"flops": [2.0, 4.0], "bytes": [3.0, 3.0], "cycles": [None, 10], "kernels": [2, 0], "lookups": [0, 1]}
    assert table({"A": said}).splitlines()[-1] == "| A | (2 kernels) | 10 (+1) |  |  | 0.500 | 1.000 |  |"
