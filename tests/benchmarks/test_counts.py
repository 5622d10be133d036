"""What the benchmarks promise in counts: FLOPs, bytes and collective bytes beside plain JAX. No times."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from benchmarks import mesh_step, one_device
from benchmarks.costs import collective_bytes, counts
from benchmarks.models import PLANS, Sizes, layer, with_gradients

# Long sequences of small vectors: the scores of attention are most of the bytes.
LAYER = Sizes(embed=32, heads=4, batch=2, seq=64)
MODEL = Sizes(layers=1, embed=32, heads=4, vocab=64, batch=4, seq=16)


def assert_equal(ours, peer):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(peer), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


# Forwards a block is held by what it costs with its gradient.
@pytest.mark.parametrize(
    ("name", "direction"),
    [
        pytest.param(name, direction, marks=[pytest.mark.thorough] * ((name, direction) == ("block", "forward")))
        for name in ("mlp", "block")
        for direction in one_device.DIRECTIONS
    ],
)
def test_layer_costs_what_plain_jnp_costs(name, direction):
    ours, peer, args = one_device.compiled_pair(name, direction, LAYER)
    assert_equal(ours(*args), peer(*args))
    cost, plain = counts(ours), counts(peer)
    assert plain["flops"] > 1e6
    for what in ("flops", "bytes"):
        assert cost[what] <= one_device.COUNTS * plain[what], (what, cost, plain)


def test_block_planned_on_one_device_costs_what_plain_jnp_costs():
    graph, peer, args = layer("block", LAYER)
    plan = tp.plan(graph, tp.mesh(data=1), {"batch": "data"})
    ours, plain = (jax.jit(with_gradients(f)).lower(*args).compile() for f in (plan.compile(), peer))
    assert "all-reduce" not in ours.as_text()
    for what in ("flops", "bytes"):
        assert counts(ours)[what] <= one_device.COUNTS * counts(plain)[what], what


NARROWEST, *BETWEEN, WIDEST = PLANS


# The forward pass of the widest plan is where both send the same, so that one more byte shows.
@pytest.mark.parametrize(
    ("entries", "direction"),
    [
        *(pytest.param(each, "training step", marks=pytest.mark.thorough) for each in (NARROWEST, *BETWEEN)),
        (WIDEST, "training step"),
        pytest.param(WIDEST, "loss", marks=pytest.mark.thorough),
    ],
)
def test_plan_sends_no_more_than_xla(entries, direction, mesh2x4):
    ours, peer, args = mesh_step.compiled_pair(entries, direction, mesh2x4, MODEL)
    assert_equal(ours(*args), peer(*args))
    sent, xla = collective_bytes(ours, mesh2x4), collective_bytes(peer, mesh2x4)
    # What is summed in any case: gradients of uncut parameters over `data`, or two blocks' outputs over `model`.
    assert sent["all-reduce"] >= 4 * MODEL.vocab * MODEL.embed / 4
    assert sent.total() <= mesh_step.BYTES * xla.total(), (sent, xla)
    assert counts(ours)["flops"] <= one_device.COUNTS * counts(peer)["flops"]
