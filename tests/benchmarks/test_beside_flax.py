"""Layers and the quickstart's transformer cost what Flax's own cost: counts of compiled programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import tapestry_jax as tp
from benchmarks import flax_models
from benchmarks.beside_flax import CYCLES, PAIRS, measured, table
from benchmarks.costs import collective_bytes
from benchmarks.flax_mesh import BYTES, lowered
from benchmarks.flax_pairs import Pair, rngs
from benchmarks.models import Sizes

QUICK = ("Linear", "Conv, 3 x 3", "ConvTranspose", "max_pool", "BatchNorm")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in PAIRS]
)
def test_layers_move_as_many_bytes_as_those_of_flax(name: str) -> None:
    found = measured(PAIRS[name], 0)
    for counted in ("flops", "bytes"):
        ours, theirs = found[counted]
        assert ours <= CYCLES * theirs, counted


class Ours(tp.nnx.Module):
    """Two maps behind norms, each beside a residual."""

    def __init__(self) -> None:
        norm, mlp = (partial(each, 8, rngs=rngs()) for each in (tp.nnx.LayerNorm, partial(tp.nnx.MLP, hidden=16)))
        self.norms, self.maps = nnx.List([norm(), norm()]), nnx.List([mlp(), mlp()])

    signature = "batch seq embed -> batch seq embed"

    def forward(self, x: Any) -> Any:
        for norm, each in zip(self.norms, self.maps, strict=True):
            x = x + each(norm(x))
        return x


class Theirs(nnx.Module):
    def __init__(self) -> None:
        norm, mlp = (partial(each, 8, rngs=rngs()) for each in (nnx.LayerNorm, partial(flax_models.MLP, hidden=16)))
        self.norms, self.maps = nnx.List([norm(), norm()]), nnx.List([mlp(), mlp()])

    __call__ = Ours.forward


def test_a_residual_stream_is_computed_as_often_as_that_of_flax() -> None:
    found = measured(Pair(Ours, Theirs, jax.ShapeDtypeStruct((2, 4, 8), jnp.float32)), 0)
    for counted in ("flops", "bytes"):
        ours, theirs = found[counted]
        assert ours <= theirs, counted


# Beside what XLA makes of plain JAX in test_counts.py.
@pytest.mark.thorough
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
