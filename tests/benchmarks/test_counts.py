"""What the benchmarks promise in counts: FLOPs, bytes and collective bytes beside plain JAX. No times."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import mesh_step, one_device
from benchmarks.costs import collective_bytes, counts
from benchmarks.models import PLANS, Sizes

LAYER = Sizes(embed=64, heads=4, batch=2, seq=32)
MODEL = Sizes(layers=1, embed=32, heads=4, vocab=64, batch=4, seq=16)


def assert_equal(ours, peer):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(peer), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("direction", one_device.DIRECTIONS)
@pytest.mark.parametrize("name", ["mlp", "block"])
def test_layer_costs_what_plain_jnp_costs(name, direction):
    ours, peer, args = one_device.compiled_pair(name, direction, LAYER)
    assert_equal(ours(*args), peer(*args))
    cost, plain = counts(ours), counts(peer)
    assert plain["flops"] > 1e6
    for what in ("flops", "bytes"):
        assert cost[what] <= one_device.COUNTS * plain[what], (what, cost, plain)


@pytest.mark.parametrize("entries", PLANS)
def test_training_step_sends_no_more_than_xla(entries, mesh2x4):
    ours, peer, args = mesh_step.compiled_pair(entries, "training step", mesh2x4, MODEL)
    assert_equal(ours(*args), peer(*args))
    sent, xla = collective_bytes(ours, mesh2x4), collective_bytes(peer, mesh2x4)
    # The gradients of what is not cut are summed over `data` in any case.
    assert sent["all-reduce"] > 4 * MODEL.vocab * MODEL.embed / 4
    assert sent.total() <= mesh_step.BYTES * xla.total(), (sent, xla)
    assert counts(ours)["flops"] <= one_device.COUNTS * counts(peer)["flops"]
