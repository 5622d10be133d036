"""Derivatives that users wrote with constant tangents: kept in kernels, and in what is presented over a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.on_device import untyped

X = np.arange(18, dtype="f4").reshape(6, 3) / 5
TYPE = tp.TensorType({"t": 6, "c": 3})
ON_DEVICES: dict[str, Any] = {"t": "a"}


def quantised(slope: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    @jax.custom_jvp
    def quantise(x: Any) -> Any:
        return jnp.floor(4 * x) / 4

    quantise.defjvp(lambda primals, tangents: (quantise(primals[0]), slope(primals[0], tangents[0])))
    return lambda x: quantise(x) * x


SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda x, moved: jnp.zeros(x.shape),
    "like the result": lambda x, moved: jnp.zeros_like(x),
    "like the tangent": lambda x, moved: jnp.zeros_like(moved),
    "straight through": lambda x, moved: moved,
}


def gradient(function: Callable[[Any], Any]) -> Any:
    return jax.grad(lambda x: (function(x) * jnp.arange(3.0)).sum())(X)


@pytest.mark.parametrize("entries", [{}, ON_DEVICES, {"t": tp.chunks(2)}, {"t": ("a", tp.chunks(2))}])
@pytest.mark.parametrize("slope", SLOPES)
def test_constant_tangents_of_what_is_lifted_are_those_of_jax(slope: str, entries: dict[str, Any]) -> None:
    function = quantised(SLOPES[slope])
    run = tp.plan(tp.lift(function, TYPE), tp.mesh(a=2), entries).compile()
    np.testing.assert_array_equal(gradient(run), gradient(function))


@pytest.mark.parametrize("slope", SLOPES)
def test_tangents_in_a_kernel_over_a_mesh_are_those_of_jax(slope: str) -> None:
    function = quantised(SLOPES[slope])
    run = tp.plan(tp.trace(tp.Map(function, "t c -> t c"), TYPE), tp.mesh(a=2), ON_DEVICES).compile()
    np.testing.assert_array_equal(gradient(run), gradient(function))


PRESENTED = {
    "fold": tp.Reduce(lambda x: x.sum(1), "t c -> t", tp.monoids.Sum, present=quantised(SLOPES["constant"])),
    "scan": tp.Scan(tp.monoids.Sum, "t c -> t c", "t", present=quantised(SLOPES["constant"])),
}


@pytest.mark.parametrize("name", PRESENTED)
def test_a_constant_tangent_of_what_is_presented_over_a_mesh_is_that_of_jax(name: str) -> None:
    graph = tp.trace(PRESENTED[name], TYPE)
    run = tp.plan(graph, tp.mesh(a=2), ON_DEVICES).compile()
    np.testing.assert_allclose(run(X), graph(X), rtol=1e-6)
    np.testing.assert_array_equal(gradient_of(run), gradient_of(graph))


def gradient_of(run: Any) -> Any:
    return jax.grad(lambda x: run(x).sum())(X)


@pytest.mark.parametrize("taken", ["gradient", "in jit", "memory"])
def test_where_nobody_asked_for_a_tangent_a_constant_one_is_told_of(
    taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untyped, "has_written_states", lambda _: False)
    plan = tp.plan(tp.trace(PRESENTED["fold"], TYPE), tp.mesh(a=2), ON_DEVICES)
    run = plan.compile()
    asked = {
        "gradient": lambda: gradient_of(run),
        "in jit": lambda: jax.jit(gradient_of, static_argnums=0)(run),
        "memory": lambda: plan.memory(grad=True),
    }
    with pytest.raises(tp.PlanError, match=r"the same on all devices(?s:.*)float32\[\](?s:.*)jnp\.zeros_like"):
        asked[taken]()


def test_a_plan_with_kernels_for_other_devices_is_told_of_where_it_runs() -> None:
    @tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
    def attended(q: Any, k: Any, v: Any) -> Any:
        return tp.attention(q, k, v)

    operands = [jnp.ones((2, 4096, 128))] * 3
    entries: dict[str, Any] = {"queries": "data", "keys": tp.ring("data")}
    plan = tp.plan(tp.trace(attended, *operands), tp.mesh(data=2, model=4), entries, platforms="tpu")
    with pytest.raises(tp.PlanError, match="this plan was made for tpu, and runs on cpu"):
        plan.compile()(*operands)
