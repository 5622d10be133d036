"""Plans of values of the dtypes that few programs have: complex, floats of eight and sixteen bits, small integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.simulated.sampled import computed

ROWS = 5
"""Padding on two devices and in chunks of two."""

PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "mesh": (2, {"r": "m"}),
    "both": (2, {"r": ("m", tp.chunks(2))}),
    "stripes": (2, {"r": tp.striped("m")}),
    "ring": (2, {"s": tp.ring("m"), "r": "m"}),
}


def joined(x: Any) -> Any:
    return x[:-2] ^ x[2:] if x.dtype == bool else x[:-2] + x[2:]


def either(x: Any, y: Any) -> Any:
    return jnp.where(x == y, x, y)


PROGRAMS: dict[str, tuple[Callable[[], Any], int]] = {
    "window": (lambda: tp.Map(joined, "(r+[w]-1) c -> r c", sizes={"w": 3}, boundary="zero"), 1),
    "choice": (lambda: tp.Map(either, "r c, r c -> r c"), 2),
    "prefixes": (lambda: tp.Scan(tp.monoids.Prod, "r c -> r c", "r", reverse=True), 1),
    "products": (lambda: tp.einsum("r c, s c -> r s"), 2),
}
DTYPES = ["complex64", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "int4", "uint4", "uint8", "bool"]
QUICK = {
    ("complex64", "products", "ring"),
    ("float8_e5m2", "window", "both"),
    ("int4", "prefixes", "mesh"),
    ("bool", "window", "stripes"),
}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.thorough)
    for case in ((dtype, program, plan) for dtype in DTYPES for program in PROGRAMS for plan in PLANS)
    if (case[2] == "ring") == (case[1] == "products")
]


def drawn(dtype: str, seed: int) -> Any:
    """Numbers of which sums of a few are exact in every dtype."""
    numbers = np.random.default_rng(seed).integers(0, 2, (ROWS, 3))
    return jnp.asarray(numbers * (1 - 1j) if dtype == "complex64" else numbers).astype(dtype)


def wide(array: Any) -> Any:
    return np.asarray(jnp.asarray(array).astype(jnp.complex64))


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jnp.sum(jnp.real(function(*args).astype(jnp.complex64) * (1 + 2j)))


@pytest.mark.parametrize(("dtype", "program", "plan"), CASES)
def test_planned_is_unplanned(dtype: str, program: str, plan: str) -> None:
    (make, count), (devices, entries) = PROGRAMS[program], PLANS[plan]
    function, args = make(), [drawn(dtype, seed) for seed in range(count)]
    run = tp.plan(tp.trace(function, *args), tp.mesh(m=devices), entries).compile()
    found, expected = computed(run, *args), function(*args)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(wide(found), wide(expected))
    if jnp.issubdtype(args[0].dtype, jnp.inexact):
        slopes = [computed(jax.grad(loss(each), tuple(range(count))), *args) for each in (run, function)]
        for own, wanted in zip(*slopes, strict=True):
            assert own.dtype == wanted.dtype
            np.testing.assert_array_equal(wide(own), wide(wanted))


@pytest.mark.parametrize("dtype", ["int2", "uint2"])
def test_what_xla_sends_wrongly_is_refused_where_it_would_be_sent(dtype: str) -> None:
    x = jnp.ones((ROWS, 3)).astype(dtype)
    graph = tp.trace(tp.Map(lambda x: x[:, ::-1], "r [c] -> r [c]"), x)
    with pytest.raises(tp.PlanError) as caught:
        tp.plan(graph, tp.mesh(m=2), {"r": "m"}).compile()
    assert str(caught.value) == (
        f"the plan holds values of {dtype} on 2 CPU devices\n"
        "  XLA for CPUs sends elements of two bits wrongly from one device to another\n"
        "  Take int4, int8 or another type for what is planned, or a mesh of one device."
    )
    alone = tp.plan(graph, tp.mesh(m=1), {"r": tp.chunks(size=2)}).compile()
    np.testing.assert_array_equal(wide(alone(x)), wide(x))
