"""The cases of Loom at small sizes: all programs of a case agree, and what ours communicates and holds. No times."""

from __future__ import annotations

import math
from functools import lru_cache

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from benchmarks import loom, loom_attention, loom_cross_entropy, loom_flash, loom_microbatch, loom_stencil

CASES = {
    "ring": lambda: loom_attention.case(heads=2, seq=64, d=4),
    "causal ring": lambda: loom_attention.case(causal=True, heads=2, seq=64, d=4, gradients=True),
    "heat": lambda: loom_stencil.heat(height=32, width=8, steps=3),
    "stencil": lambda: loom_stencil.deep(height=32, width=8, steps=8, depth=4),
    "microbatch": lambda: loom_microbatch.case(batch=128, embed=4, mlp=8),
    "accumulation": lambda: loom_microbatch.case(devices=1, batch=256, embed=4, mlp=8),
    "flash": lambda: loom_flash.case(heads=2, seq=128, d=4),
    "cross-entropy": lambda: loom_cross_entropy.case(tokens=64, embed=4, vocab=128),
}


def assert_equal(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-3, atol=2e-4)


@lru_cache
def peers(name):
    case = CASES[name]()
    mesh = tp.mesh(jax.devices()[: math.prod(case.mesh.values())], **case.mesh)
    arguments = loom.placed(case, mesh)
    return {
        label: loom.compile_for(function, case, mesh, arguments)(*arguments)
        for label, function in (
            ("unplanned", case.program),
            ("automatic", case.automatic),
            ("hand", case.by_hand(mesh)),
        )
    }


@pytest.mark.parametrize("name", CASES)
def test_loom_peers_compute_what_the_program_does(name):
    results = peers(name)
    assert_equal(results["automatic"], results["unplanned"])
    assert_equal(results["hand"], results["unplanned"])
