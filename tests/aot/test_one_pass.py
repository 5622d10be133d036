"""Reductions of several arrays are one pass over memory on TPUs, by their compiler: nothing is written on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp

CASES: dict[str, tuple[Callable[[], Any], float]] = {
    "moments": (tp.aggregators.Moments, 1.2),
    "variance": (lambda: tp.aggregators.Moments(2), 1.2),
    "minimum and maximum": (tp.aggregators.MinMax, 1.1),
    "maximum": (tp.aggregators.Max, 1.1),
}
"""The aggregator, and how often it reads its input at most; one in sixty-four is read twice."""


@pytest.mark.parametrize("machine", ["v5p:2x2x2"], indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_the_input_is_read_once_and_nothing_is_written(machine: str, name: str) -> None:
    aggregator, most = CASES[name]
    device = next(iter(tp.topology(machine, all=8).devices.flat))
    where = jax.sharding.SingleDeviceSharding(device)
    xs = jax.ShapeDtypeStruct((1 << 20, 64), jnp.float32, sharding=where)
    compiled = jax.jit(aggregator().lift_many, out_shardings=where).lower(xs).compile()
    size, memory = 4 << 26, compiled.memory_analysis()
    assert compiled.cost_analysis()["bytes accessed"] <= most * size
    assert memory.temp_size_in_bytes <= size / 64
