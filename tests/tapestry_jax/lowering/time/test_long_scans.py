"""Long scans are cut as is best on the machine that a plan is for, whether their steps are cut over the mesh or not."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.numerics import row_scan


@pytest.mark.parametrize("cut", ["t", "d"])
@pytest.mark.parametrize(("platforms", "by_rows"), [("tpu", False), ("cuda", False), ("cpu", True)])
def test_a_plan_scans_as_its_machine_does(cut: str, platforms: str, by_rows: bool) -> None:
    steps = tp.TensorType({"t": 2 * row_scan.ROWS.least, "d": 2}, jnp.float32)
    graph = tp.trace(tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d, t d", over="t"), steps, steps)
    text = str(tp.plan(graph, tp.mesh(data=2), {cut: "data"}, platforms=platforms).compile().jaxpr())
    # Rows begin with their first step.
    assert (f"length={row_scan.ROWS.length - 1}" in text) is by_rows
