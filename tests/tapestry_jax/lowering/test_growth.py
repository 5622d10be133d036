"""Lowering takes time in proportion to the program: work is counted, not time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.pinned import lower_pinned
from tests.work import growth

matmul, tanh = tp.einsum("i k, k n -> i n"), tp.Map(jnp.tanh)


def layers(count: int) -> tp.Graph:
    def run(x: Any, w: Any) -> Any:
        for _ in range(count):
            x = tanh(matmul(x, w).rename(n="k"))
        return x

    return tp.trace(run, tp.TensorType({"i": 8, "k": 8}), tp.TensorType({"k": 8, "n": 8}))


@pytest.mark.parametrize("grad", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["forward", "gradient"])
def test_lowering_is_linear(mesh2x4: Any, grad: bool) -> None:
    def planned(count: int) -> tp.Plan:
        return tp.plan(layers(count), mesh2x4, {"i": "data", "n": "model"})

    assert growth(planned, lambda plan: lower_pinned(plan.schedule, mesh2x4, grad), size=5) < 1.3
