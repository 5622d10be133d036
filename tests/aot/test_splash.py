"""Attention on TPUs: splash attention is in the compiled program, once for each block and phase, and sends nothing."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.aot.held import assert_held

# Blocks whose scores, 64 MiB and more, do not stay in fast memory.
ROWS, HEADS = 8192, 16


@pytest.mark.parametrize("machine", ["v5e:2x4"], indirect=True)
@pytest.mark.parametrize(
    ("entries", "kernel", "calls"),
    [
        # Forward, again for the gradient, and the two kernels of the gradient: of eight turns each.
        ({"queries": tp.striped("data"), "keys": tp.ring("data")}, "splash_state", 32),
        # Keys are whole: nothing is computed again.
        ({"queries": "data"}, "splash_attention", 3),
    ],
    ids=["a causal ring in stripes", "queries cut"],
)
def test_the_kernel_is_compiled_and_the_plan_holds(machine: str, entries: Any, kernel: str, calls: int) -> None:
    queries, keys = (tp.TensorType({"heads": HEADS, rows: ROWS, "d": 64}, jnp.bfloat16) for rows in ("queries", "keys"))
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v, causal=True), queries, keys, keys)
    plan = tp.plan(graph, tp.topology(machine, data=8), entries)
    assert f"dense {kernel}" in plan.explain()
    seen = plan.compile_only(grad=True)
    assert_held(seen)
    assert all(f"splash_mha_{phase}" in seen.hlo for phase in ("fwd_residuals", "dq_no_residuals", "dkv_no_residuals"))
    # A search of uneven coordinates, which sorts, stands in a branch; it is counted, and not run here.
    assert seen.hlo.count("tpu_custom_call") and seen.unestimated >= calls
