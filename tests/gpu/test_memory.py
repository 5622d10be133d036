"""Memory as predicted, held to what the compiler allots, whose kernels are tried on the device that is there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.pinned import lower_pinned
from tests.gpu.test_in_time import cross_entropy, deep

pytestmark = pytest.mark.gpu

S = jax.ShapeDtypeStruct
F = jnp.float32
LAYERS = [S((8192, 512), F), S((4, 512, 2048), F), S((4, 2048, 512), F)]
HEAD = [S((8192, 512), F), S((512, 32768), F), S((8192,), jnp.int32)]
SIZES: dict[str, tuple[Any, list[Any], dict[str, Any], dict[str, Any]]] = {
    "layers": (deep, LAYERS, {}, {}),
    "layers, computed again": (deep, LAYERS, {}, {"remat": True}),
    "cross-entropy, words in chunks": (cross_entropy, HEAD, {"vocab": tp.chunks(16)}, {}),
}
WORKSPACE = 48 * 2**20
"""Bytes: cuBLAS works in 32 MiB of an H100 that are nobody's value and are not predicted; and gaps around them."""


@pytest.mark.parametrize("name", SIZES)
def test_memory_is_what_the_compiler_allots(name: str, mesh: Any) -> None:
    program, types, entries, options = SIZES[name]
    plan = tp.plan(tp.trace(program, *types), mesh, entries, **options)
    found = lower_pinned(plan.schedule, plan.mesh, True).compile().memory_analysis()
    allotted = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    predicted = plan.memory(grad=True).total
    assert predicted == pytest.approx(allotted, rel=0.1) or 0 <= allotted - predicted <= WORKSPACE
