"""Kernels that select: boxes come to what the whole does of most numbers, by chance, and are wrong of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.simulated.sampled import in_numpy

Max, Min, Sum = tp.monoids.Max, tp.monoids.Min, tp.monoids.Sum
PLANS = {"devices": (2, "d"), "chunks": (1, tp.chunks(3))}


def flipped(v: Any) -> Any:
    return lax.cond(v.sum() > 0, lambda u: u, lambda u: -u, v)


def until_large(v: Any) -> Any:
    return lax.while_loop(lambda u: u.sum() < 5, lambda u: u + 1, v)


def each_until_large(v: Any) -> Any:
    return lax.while_loop(lambda u: (u < 5).any(), lambda u: jnp.where(u < 5, u + 1, u), v)


def only_largest(v: Any) -> Any:
    return jnp.where(v == v.max(0), v, 0)


def shifted(v: Any) -> Any:
    return jnp.concatenate([jnp.zeros_like(v[:1]), v[:-1]])


def first_three(v: Any) -> Any:
    return jnp.where(jnp.arange(len(v)) < 3, v, 0)


# By name: the kernel, its signature, the dimension that is cut, and what merges its parts.
Row = tuple[Callable[..., Any], str, str, Any]
WRONG: dict[str, Row] = {
    "a condition": (flipped, "n -> n", "n", None),
    "a loop until all are large": (until_large, "n -> n", "n", None),
    "the largest of each, least of parts": (lambda x: x.max(), "n c -> ", "c", Min),
    "the largest of each by ties": (lambda x: only_largest(x).sum(), "n c -> ", "n", Max),
    "larger by far": (lambda x, y: jnp.maximum(shifted(x)[:, None], 9 + y * y).max(1), "n, m -> n", "n", Max),
    "places of few": (
        lambda x, y: jnp.maximum(x[:, None], first_three(y) * y[:1]).max(1),
        "n, m -> n",
        "m",
        Min,
    ),
    "added in a loop": (lambda x: lax.fori_loop(0, 3, lambda _, u: u + 1, x.sum(0)), "n [c] -> [c]", "n", Sum),
}
RIGHT: dict[str, Row] = {
    "a loop that stops for each": (each_until_large, "n -> n", "n", None),
    "a choice for each": (lambda v: jnp.where(v > 0, v, -2 * v), "n -> n", "n", None),
    "the largest of all": (lambda x: x.max(), "n c -> ", "c", Max),
    "the largest along what is whole": (lambda x: only_largest(x.T).T, "n [c] -> n [c]", "n", None),
    "the largest of largest": (lambda x, y: jnp.maximum(x[:, None], y * y).max(1), "n, m -> n", "m", Max),
    "multiplied in a loop": (lambda x: lax.fori_loop(0, 3, lambda _, u: u * 2, x.sum(0)), "n [c] -> [c]", "n", Sum),
    "sorted first": (lambda x: jnp.sort(x)[-1], "n -> ", "n", Max),
}


def planned(row: Row, plan: str, dtype: str) -> tuple[Any, Any, list[Any]]:
    kernel, signature, cut, monoid = row
    rng, sizes = np.random.default_rng(0), {"n": 8, "m": 6, "c": 5, "[c]": 5}
    read = [operand.split() for operand in signature.split("->")[0].split(",")]
    arrays = [rng.integers(-4, 5, [sizes[dim] for dim in dims]).astype(dtype) for dims in read]
    arrow = tp.Map(kernel, signature) if monoid is None else tp.Reduce(kernel, signature, monoid)
    devices, entry = PLANS[plan]
    return arrow, tp.plan(tp.trace(arrow, *arrays), tp.mesh(d=devices), {cut: entry}), arrays


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_equal_by_chance_alone_is_refused(name: str, plan: str, dtype: str) -> None:
    _, given, _ = planned(WRONG[name], plan, dtype)
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        given.compile().lower()


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", RIGHT)
def test_what_selects_and_is_right_is_planned(name: str, plan: str, dtype: str) -> None:
    arrow, given, arrays = planned(RIGHT[name], plan, dtype)
    np.testing.assert_allclose(in_numpy(given.compile())(*arrays), in_numpy(arrow)(*arrays), rtol=1e-5, atol=1e-5)
