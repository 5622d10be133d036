"""Losses in floats of a narrow range, in chunks: a scale, before or behind the sum, does what it does unplanned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.declared.range import keeps_range
from tapestry_jax.lowering.on_device.traced import traced
from tests.contract import assert_contract
from tests.simulated.sampled import compiled, computed

product = tp.einsum("b e, e o -> b o")


def squares(values: Any) -> Any:
    return jnp.sum(values * values)


def twice_in_half(values: Any, factor: float) -> Any:
    # XLA would make one factor of two that follow each other.
    short = jnp.tanh(values.astype(jnp.float16) * factor) * factor
    return jnp.sum(short.astype(jnp.float32))


def squared_in_half(values: Any) -> Any:
    return twice_in_half(values * values, 1.0)


tiny, huge = partial(twice_in_half, factor=2.0**-13), partial(twice_in_half, factor=2.0**9)


def loss(kernel: Callable[..., Any], scale: float | None) -> Any:
    @tp.program("b e, e o -> ")
    def total(x: Any, w: Any) -> Any:
        found = tp.Reduce(kernel, "b o -> ", tp.monoids.Sum)(product(x, w))
        return found if scale is None else found * scale

    return total


def planned(program: Any, args: Any, mesh: Any) -> Any:
    return tp.plan(tp.trace(program, *args), mesh, {"b": ("data", tp.chunks(2))})


def arguments(dtype: Any, size: float) -> tuple[Any, Any]:
    x, w = jax.random.normal(jax.random.key(0), (8, 3)), jax.random.normal(jax.random.key(1), (3, 2))
    return (size * x).astype(dtype), (size * w).astype(dtype)


def gradients(run: Any, args: Any, scale: float, call: Any = compiled) -> Any:
    # The scale is a power of two: what float32 gives without it, times it, is the truth.
    return call(jax.grad(lambda *args: run(*args).astype(jnp.float32) * scale, argnums=(0, 1)), *args)


CASES = [
    pytest.param(jnp.float16, squares, 4e-3, 2.0**14, id="small float16"),
    pytest.param(jnp.float16, squares, 80.0, 2.0**-12, id="large float16"),
    pytest.param(jnp.float32, tiny, 1.0, 2.0**14, id="small float16 in a kernel"),
    pytest.param(jnp.float32, huge, 1e-2, 2.0**-12, id="large float16 in a kernel"),
    pytest.param(jnp.bfloat16, squares, 4e-3, 2.0**14, id="bfloat16"),
]


@pytest.mark.parametrize("inside", [False, True], ids=["behind", "inside"])
@pytest.mark.parametrize(("dtype", "kernel", "size", "scale"), CASES)
def test_a_scaled_loss_has_the_gradients_of_the_unplanned_program(
    dtype: Any, kernel: Any, size: float, scale: float, inside: bool, mesh2x4: Any
) -> None:
    args, program = arguments(dtype, size), loss(kernel, scale if inside else None)
    found = gradients(planned(program, args, mesh2x4).compile(), args, 1.0 if inside else scale)
    for got, expected in zip(found, gradients(program, args, 1.0 if inside else scale, computed), strict=True):
        assert float(jnp.abs(expected.astype(jnp.float32)).max()) > 0
        np.testing.assert_allclose(
            got.astype(jnp.float32), expected.astype(jnp.float32), rtol=0.05, atol=0.01 * float(jnp.abs(expected).max())
        )


def test_a_narrow_loss_has_tangents_second_derivatives_batches_and_predicted_collectives(mesh2x4: Any) -> None:
    args, program = arguments(jnp.float32, 0.5), loss(squared_in_half, None)
    plan = planned(program, args, mesh2x4)
    assert_contract(plan)
    run = plan.compile()
    tangents = tuple(jnp.ones_like(argument) for argument in args)

    def close(actual: Any, expected: Any) -> None:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-7), actual, expected)

    def derived(f: Any, args: Any) -> Any:
        curvature = jax.jvp(jax.grad(f, argnums=1), args, tangents)[1]
        rows = jnp.stack([args[1], 2 * args[1]])
        return jax.jvp(f, args, tangents), curvature, jax.vmap(jax.grad(lambda w: f(args[0], w)))(rows)

    close(*jax.jit(lambda args: (derived(run, args), derived(program, args)))(args))


def test_a_loss_of_wide_floats_is_still_differentiated_in_its_forward_loop(mesh2x4: Any) -> None:
    def loops(dtype: Any, kernel: Any) -> int:
        args = arguments(dtype, 1.0)
        run = planned(loss(kernel, None), args, mesh2x4).compile()
        return str(jax.make_jaxpr(jax.grad(lambda w: run(args[0], w).astype(jnp.float32)))(args[1])).count(" scan[")

    assert loops(jnp.float32, squares) == loops(jnp.bfloat16, squares) == 1
    assert loops(jnp.float16, squares) == loops(jnp.float32, tiny) == 2


def test_narrow_floats_are_found_however_deep_they_hide() -> None:
    def hidden(x: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            return jax.lax.cond(carry > 0, lambda c: c.astype(jnp.float16).astype(c.dtype), lambda c: c, carry), None

        return jax.lax.scan(jax.jit(turn), x, None, length=2)[0]

    assert not keeps_range(traced(hidden, jnp.float32(1)).jaxpr)
    assert keeps_range(traced(lambda x: x.astype(jnp.bfloat16) * 2, jnp.float32(1)).jaxpr)
    assert not keeps_range(traced(lambda x: x.astype(jnp.float8_e5m2), jnp.float32(1)).jaxpr)
