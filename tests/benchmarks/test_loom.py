"""The cases of Loom at small sizes: all programs of a case agree, and what ours communicates and holds. No times."""

from __future__ import annotations

import math
from functools import lru_cache

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from benchmarks import (
    loom,
    loom_attention,
    loom_cross_entropy,
    loom_flash,
    loom_microbatch,
    loom_scan,
    loom_stencil,
    loom_topk,
)
from benchmarks.costs import collective_bytes

CASES = {
    "ring": lambda: loom_attention.case(heads=2, seq=64, d=4),
    "causal ring": lambda: loom_attention.case(causal=True, heads=2, seq=64, d=4, gradients=True),
    "heat": lambda: loom_stencil.heat(height=32, width=8, steps=3),
    "stencil": lambda: loom_stencil.deep(height=32, width=8, steps=8, depth=4),
    "microbatch": lambda: loom_microbatch.case(batch=128, embed=4, mlp=8),
    "accumulation": lambda: loom_microbatch.case(devices=1, batch=256, embed=4, mlp=8),
    "flash": lambda: loom_flash.case(heads=2, seq=128, d=4),
    "scan": lambda: loom_scan.case(length=256, width=2),
    "top-k": lambda: loom_topk.case(length=512, k=4),
    "cross-entropy": lambda: loom_cross_entropy.case(tokens=64, embed=4, vocab=128),
}

PLANNED = ("heat", "stencil", "scan", "top-k")


def assert_equal(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-3, atol=2e-4)


@lru_cache
def built(name):
    """The three programs of a case, and what they return."""
    programs = loom.compiled(CASES[name]())
    return programs, [program(*programs.arguments) for program in (programs.ours, programs.automatic, programs.by_hand)]


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


@pytest.mark.parametrize("name", [name for name in CASES if name not in PLANNED])
def test_loom_peers_compute_what_the_program_does(name):
    results = peers(name)
    assert_equal(results["automatic"], results["unplanned"])
    assert_equal(results["hand"], results["unplanned"])


@pytest.mark.parametrize("name", PLANNED)
def test_loom_plan_computes_what_its_peers_compute(name):
    _, (ours, automatic, by_hand) = built(name)
    assert_equal(ours, automatic)
    assert_equal(ours, by_hand)


def test_loom_heat_exchanges_two_rows_a_step():
    programs, _ = built("heat")
    assert loom.executions(programs.ours, programs.mesh) == {"collective-permute": 2 * 3}
    assert collective_bytes(programs.ours, programs.mesh).total() == 2 * 3 * 8 * 4
    assert loom.executions(programs.automatic, programs.mesh)["collective-permute"] > 2 * 3
    assert loom.temporaries(programs.ours) <= 1.1 * loom.temporaries(programs.by_hand)


def test_loom_deep_stencil_exchanges_twice_in_eight_steps():
    programs, _ = built("stencil")
    assert loom.executions(programs.ours, programs.mesh) == {"collective-permute": 2 * 2}
    assert collective_bytes(programs.ours, programs.mesh).total() == 2 * 2 * 4 * 8 * 4
    assert loom.executions(programs.automatic, programs.mesh)["collective-permute"] == 2 * 8
    assert loom.temporaries(programs.ours) <= 1.1 * loom.temporaries(programs.by_hand)


def test_loom_scan_sends_the_totals_of_the_devices_alone():
    programs, _ = built("scan")
    # Four rounds of two leaves, less the multiplier that the last round does not need.
    assert loom.executions(programs.ours, programs.mesh) == {"collective-permute": 7}
    assert collective_bytes(programs.ours, programs.mesh).total() == 7 * 2 * 4
    assert collective_bytes(programs.automatic, programs.mesh).total() > 10 * 7 * 2 * 4


def test_loom_top_k_gathers_the_candidates_of_the_devices_alone():
    programs, _ = built("top-k")
    assert loom.executions(programs.ours, programs.mesh) == {"all-gather": 2}
    assert collective_bytes(programs.ours, programs.mesh).total() == 2 * 8 * 4 * 4
    assert collective_bytes(programs.automatic, programs.mesh).total() >= 512 * 4
