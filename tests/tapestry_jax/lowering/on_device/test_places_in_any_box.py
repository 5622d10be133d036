"""Kernels that take one place of their block: it lies in one box of many, be it the first, the last or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

LENGTH, MANY = 12, 1 << 25
FOUR = {"devices": (4, "d"), "chunks": (1, tp.chunks(4))}


def refused(arrow: Any, dim: str, size: int, plan: str, cols: int | None = None) -> None:
    devices, entry = FOUR[plan]
    dims = {"n": size} if cols is None else {"n": size, "c": cols}
    graph = tp.trace(arrow, tp.TensorType(dims, jnp.float32))
    compiled = tp.plan(graph, tp.mesh(d=devices), {dim: entry}).compile()
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        compiled.lower(jax.ShapeDtypeStruct(tuple(dims.values()), jnp.float32))


@pytest.mark.parametrize("plan", FOUR)
@pytest.mark.parametrize("place", range(LENGTH))
def test_a_place_is_seen_in_every_box(place: int, plan: str) -> None:
    refused(tp.Map(lambda x: x.at[place].set(0), "n -> n"), "n", LENGTH, plan)


KERNELS: dict[str, Callable[[int], Any]] = {
    "added": lambda at: tp.Map(lambda x: x.at[np.array([at])].add(1), "n -> n"),
    "a slice": lambda at: tp.Map(lambda x: x.at[at : at + 2].set(0), "n -> n"),
    "computed": lambda at: tp.Map(lambda x: x.at[jnp.int32(at // 2) * 2].set(0), "n -> n"),
    "of a fold": lambda at: tp.Reduce(lambda x: x.at[at].set(0).sum(), "n -> ", tp.monoids.Sum),
    "of a scan": lambda at: tp.Scan(tp.monoids.Sum, "n -> n", "n", kernel=lambda x: x.at[at].set(0)),
    "of steps": lambda at: tp.Map(lambda x: jax.lax.fori_loop(0, 2, lambda i, u: u.at[at + i].set(0), x), "n -> n"),
}


@pytest.mark.parametrize("plan", FOUR)
@pytest.mark.parametrize("name", KERNELS)
def test_it_is_seen_however_it_is_written(name: str, plan: str) -> None:
    refused(KERNELS[name](4), "n", LENGTH, plan)


@pytest.mark.parametrize("plan", FOUR)
@pytest.mark.parametrize("dim", ["n", "c"])
def test_it_is_seen_along_each_of_two_axes(dim: str, plan: str) -> None:
    refused(tp.Map(lambda x: x.at[4, 5].set(0), "n c -> n c"), dim, LENGTH, plan, cols=LENGTH)


@pytest.mark.parametrize("name", ["added", "a slice", "computed", "of a fold"])
def test_it_is_seen_among_more_cells_than_are_run(name: str) -> None:
    refused(KERNELS[name](20_000_000), "n", MANY, "devices")


def where_large(place: int) -> Any:
    return tp.Map(lambda x: x.at[place].set(jnp.where(x[place] > 20, 0.0, x[place])), "n -> n")


@pytest.mark.parametrize("plan", FOUR)
@pytest.mark.parametrize("place", [4, 7])
def test_a_place_that_most_numbers_leave_as_it_is_is_seen(place: int, plan: str) -> None:
    refused(where_large(place), "n", LENGTH, plan)


SLOPES: dict[str, Callable[[Any], Any]] = {
    "stopped": lambda x: x.at[4].set(jax.lax.stop_gradient(x)[4]),
    "stopped in a slice": lambda x: x.at[4:5].set(jax.lax.stop_gradient(x)[4:5]),
    "chosen": lambda x: jnp.where(jnp.zeros(len(x)).at[4].set(1) > 0, jax.lax.stop_gradient(x), x),
}


@pytest.mark.parametrize("plan", FOUR)
@pytest.mark.parametrize("name", SLOPES)
def test_a_place_of_slopes_alone_is_seen(name: str, plan: str) -> None:
    refused(tp.Map(SLOPES[name], "n -> n"), "n", LENGTH, plan)


@pytest.mark.parametrize("plan", FOUR)
def test_a_place_of_a_derivative_that_somebody_wrote_is_seen(plan: str) -> None:
    @jax.custom_vjp
    def without_four(x: Any) -> Any:
        return x

    without_four.defvjp(lambda x: (x, None), lambda _, slope: (slope.at[4].set(0),))
    devices, entry = FOUR[plan]
    x = np.arange(1.0, 1 + LENGTH, dtype=np.float32)
    compiled = tp.plan(tp.trace(tp.Map(without_four, "n -> n"), x), tp.mesh(d=devices), {"n": entry}).compile()
    np.testing.assert_array_equal(compiled(x), x)
    with pytest.raises(tp.PlanError, match="somebody wrote it, and it is false of parts"):
        jax.grad(lambda x: compiled(x).sum())(x)


@pytest.mark.parametrize("plan", FOUR)
def test_places_along_what_is_whole_are_taken(plan: str) -> None:
    devices, entry = FOUR[plan]
    x = np.arange(1.0, 1 + LENGTH * 3, dtype=np.float32).reshape(LENGTH, 3)
    arrow = tp.Map(lambda x: x.at[:, 2].set(0), "n [c] -> n [c]")
    got = tp.plan(tp.trace(arrow, x), tp.mesh(d=devices), {"n": entry}).compile()(x)
    np.testing.assert_array_equal(got, arrow(x))
