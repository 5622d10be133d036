"""The cases of Loom at small sizes: all programs of a case agree, and what ours communicates and holds. No times."""

from __future__ import annotations

from functools import lru_cache

import jax
import numpy as np
import pytest

from benchmarks import (
    loom,
    loom_attention,
    loom_cross_entropy,
    loom_flash,
    loom_microbatch,
    loom_pipeline,
    loom_scan,
    loom_stencil,
    loom_topk,
)
from benchmarks.costs import collective_bytes
from tapestry_jax.hlo.collectives import compiled_collectives
from tests.contract import table
from tests.thoroughly import but

CASES = {
    "ring": lambda: loom_attention.case(causal=True, heads=2, seq=256, d=8),
    "heat": lambda: loom_stencil.heat(height=32, width=8, steps=3),
    "stencil": lambda: loom_stencil.deep(height=32, width=8, steps=8, depth=4),
    "microbatch": lambda: loom_microbatch.case(batch=512, embed=8, mlp=32),
    "flash": lambda: loom_flash.case(heads=2, seq=512, d=8),
    "pipeline": lambda: loom_pipeline.case(layers=16, batch=64, embed=8, mlp=16, chunks=8),
    "scan": lambda: loom_scan.case(length=256, width=2),
    "top-k": lambda: loom_topk.case(length=512, k=4),
    "cross-entropy": lambda: loom_cross_entropy.case(tokens=128, embed=16, vocab=2048),
    "cross-entropy by rows": lambda: loom_cross_entropy.case(512, 16, 256, 16, over="token"),
}

# Temporaries of ours to those of automatic JAX and of the hand-written program. What is carried weighs more here.
HELD = {
    "ring": (1 / 4, 1.1),
    "heat": (1, 1.1),
    "flash": (1 / 14, 1.3),
    "cross-entropy": (1 / 12, 2.5),
    "cross-entropy by rows": (1 / 4, 1.1),
    "microbatch": (2 / 3, 1.1),
}

# Chunks of a softmax in one device's time are those of the cross-entropy.
ALIKE = ("flash", "cross-entropy by rows")


def assert_equal(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


@lru_cache
def compiled(name):
    return loom.compiled(CASES[name]())


def executions(name, whose="ours"):
    programs = compiled(name)
    return loom.executions(getattr(programs, whose), programs.mesh)


def sent(name, whose="ours"):
    programs = compiled(name)
    return collective_bytes(getattr(programs, whose), programs.mesh).total()


@pytest.mark.parametrize("name", but(CASES, *ALIKE))
def test_loom_plan_computes_what_its_peers_compute(name):
    programs = compiled(name)
    ours = programs.ours(*programs.arguments)
    assert_equal(ours, programs.automatic(*programs.arguments))
    assert_equal(ours, programs.by_hand(*programs.arguments))


@pytest.mark.parametrize("name", but(CASES, *ALIKE))
def test_loom_plan_predicts_what_it_sends(name):
    programs, count = compiled(name), CASES[name]().gradients
    predicted = programs.plan.collectives(tuple(range(count)) if count else False)
    assert table(predicted) == table(compiled_collectives(programs.ours.as_text(), programs.mesh))


@pytest.mark.parametrize("name", but(HELD, *ALIKE))
def test_loom_plan_holds_little(name):
    programs = compiled(name)
    automatic, by_hand = HELD[name]
    held = loom.temporaries(programs.ours)
    assert held <= automatic * loom.temporaries(programs.automatic)
    assert held <= by_hand * loom.temporaries(programs.by_hand)


def test_loom_ring_gathers_nothing():
    # Keys and values go once around.
    piece = 2 * (256 // 8) * 8 * 4
    assert executions("ring") == {"collective-permute": 2 * 7}
    assert sent("ring") == 2 * 7 * piece
    assert executions("ring", "automatic")["all-gather"] > 0


def test_loom_heat_exchanges_two_rows_a_step():
    assert executions("heat") == {"collective-permute": 2 * 3}
    assert sent("heat") == 2 * 3 * 8 * 4
    assert executions("heat", "automatic")["collective-permute"] > 2 * 3


def test_loom_deep_stencil_exchanges_twice_in_eight_steps():
    assert executions("stencil") == {"collective-permute": 2 * 2}
    assert sent("stencil") == 2 * 2 * 4 * 8 * 4
    assert executions("stencil", "automatic")["collective-permute"] == 2 * 8


def test_loom_microbatches_reduce_gradients_once():
    # Two matrices and the loss in one reduction; in plain JAX every chunk reduces.
    assert sent("microbatch") == (2 * 8 * 32 + 1) * 4
    assert executions("microbatch") == {"all-reduce": 1}
    assert sent("microbatch", "automatic") > 7 * sent("microbatch")


def test_loom_pipeline_hands_on_one_chunk_a_turn_and_moves_no_weights():
    # 8 chunks through 8 stages, forward and backward; then the results of the last stage.
    assert executions("pipeline") == {"collective-permute": 2 * (8 + 8 - 1), "all-reduce": 1}
    assert sent("pipeline") == 2 * 15 * (64 // 8) * 8 * 4 + 64 * 8 * 4
    assert "all-gather" in executions("pipeline", "automatic")


@pytest.mark.parametrize("name", but(["flash", "cross-entropy"], *ALIKE))
def test_loom_one_device_sends_nothing(name):
    assert executions(name) == {}


def test_loom_scan_sends_the_totals_of_the_devices_alone():
    # Four rounds of two leaves, less the multiplier that the last round does not need.
    assert executions("scan") == {"collective-permute": 7}
    assert sent("scan") == 7 * 2 * 4
    assert sent("scan", "automatic") > 10 * 7 * 2 * 4


def test_loom_top_k_gathers_the_candidates_of_the_devices_alone():
    assert executions("top-k") == {"all-gather": 2}
    assert sent("top-k") == 2 * 8 * 4 * 4
    assert sent("top-k", "automatic") >= 512 * 4
