"""The contract on sketches and samples: native collectives, and bit for bit what one device finds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named
from tests.thoroughly import thoroughly

agg = tp.aggregators
SKETCHES = {
    "distinct": agg.HyperLogLog(6),
    "filter": agg.Bloom(64, 2),
}
# Sums and minima; each is a fold of its own, and a collective that other tests of the contract hold.
if thoroughly():
    SKETCHES |= {
        "counts": agg.CountMin(32, 2),
        "signature": agg.MinHash(8),
        "quantiles": agg.DDSketch((0.5,), accuracy=0.1),
    }
SAMPLE = agg.Reservoir(4)


def test_contract_sketches_and_samples(mesh8):
    args = (jnp.asarray(np.float32(np.random.default_rng(0).integers(-9, 9, (21, 2)))),)

    def program(x):
        found = {name: tp.fold(each, "row col -> col")(x) for name, each in SKETCHES.items()}
        return found | {"sample": tp.fold(SAMPLE, "row col, @row -> col")(x)}

    def reference(x):
        # A column of results is its own cell, in front of what the cell holds.
        x = np.asarray(x)
        found = {name: each.reference(x) for name, each in SKETCHES.items()}
        found["sample"] = SAMPLE.reference(x, np.arange(21))
        return jax.tree.map(lambda leaf: np.moveaxis(leaf, -1, 0), found)

    plan = tp.plan(tp.trace(program, *named("row col", *args)), mesh8, {"row": "data"})
    assert_contract(plan, grad=False)
    assert_same(plan, args, grad=False, rtol=1e-6, atol=0, reference=reference)
    gathered = [each for each in plan.collectives() if each.kind != "all-reduce"]
    assert gathered
    assert all("Reservoir" in str(each) for each in gathered), gathered
