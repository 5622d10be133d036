"""Kernels of windows are asked for their numbers: a program does not tell which cells of its block it should take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.simulated.sampled import in_numpy

X = np.random.default_rng(0).standard_normal(12).astype(np.float32)


def three(x: Any) -> Any:
    return x[:-2] + 2 * x[1:-1] + x[2:]


RIGHT: dict[str, Callable[[Any], Any]] = {
    "three": three,
    "largest": lambda x: jnp.stack([x[:-2], x[1:-1], x[2:]]).max(0),
    "convolved": lambda x: jnp.convolve(x, jnp.ones(3), "valid"),
    "turned": lambda x: three(x[::-1])[::-1],
    "diagonal": lambda x: jnp.diag(x[:-2, None] * x[None, 2:]),
}
WRONG: dict[str, Callable[[Any], Any]] = {
    "with all": lambda x: three(x) + x.sum(),
    "with the largest": lambda x: jnp.minimum(three(x), x.max()),
    "with the first": lambda x: three(x) * x[:1],
    "with one": lambda x: three(x) * x[1],
    "with the last": lambda x: three(x) + x[-1],
    "pairs": lambda x: (x[:-2, None] * x[None, 2:]).sum(1),
    "the first otherwise": lambda x: jnp.concatenate([-three(x)[:1], three(x)[1:]]),
    "halves": lambda x: jnp.concatenate([three(x)[:2], 2 * three(x)[2:]]),
    "filled up": lambda x: lax.pad(x[3:], jnp.float32(0), [(1, 0, 0)]),
    "counted": lambda x: three(x) / len(x),
}
PLANS = {"devices": (2, "d"), "chunks": (1, tp.chunks(3))}


def planned(kernel: Callable[[Any], Any], signature: str, boundary: str, plan: str) -> tuple[Any, Any]:
    arrow = tp.Map(kernel, signature, sizes={"w": 3}, boundary=boundary)
    devices, entry = PLANS[plan]
    return arrow, tp.plan(tp.trace(arrow, X), tp.mesh(d=devices), {"n": entry}).compile()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("signature", "boundary"), [("(n+[w]) -> n", "valid"), ("(n+[w]-1) -> n", "edge")])
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_of_windows_are_planned(name: str, signature: str, boundary: str, plan: str) -> None:
    arrow, run = planned(RIGHT[name], signature, boundary, plan)
    np.testing.assert_allclose(in_numpy(run)(X), in_numpy(arrow)(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("signature", "boundary"), [("(n+[w]) -> n", "valid"), ("(n+[w]-1) -> n", "edge")])
@pytest.mark.parametrize("name", WRONG)
def test_kernels_that_take_other_cells_are_refused(name: str, signature: str, boundary: str, plan: str) -> None:
    _, run = planned(WRONG[name], signature, boundary, plan)
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        jax.eval_shape(run, X)
