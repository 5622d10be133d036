"""Functions that mix cells and have a derivative of their own: cut along rows, with that derivative."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.lifting.agree import agrees, dims

SOURCE = np.random.default_rng(0)
X, W = SOURCE.standard_normal((13, 6)).astype("f4"), SOURCE.standard_normal((6, 6)).astype("f4")


@jax.custom_jvp
def unit(x: Any) -> Any:
    """Rows of length one; the derivative, by a factor of 3 another one, calls the function."""
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True))


@unit.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    out = unit(x)
    length = jnp.sqrt((x * x).sum(-1, keepdims=True))
    return out, 3 * (moved - out * (out * moved).sum(-1, keepdims=True)) / length


@jax.custom_vjp
def soft(x: Any, scale: Any) -> Any:
    return jax.nn.softmax(x * scale, axis=-1), (x * scale).max(-1)


def soft_forward(x: Any, scale: Any) -> Any:
    out = soft(x, scale)
    return out, (out[0], x, scale)


def soft_backward(kept: Any, slopes: Any) -> Any:
    out, x, scale = kept
    slope, of_max = slopes
    inner = out * (slope - (slope * out).sum(-1, keepdims=True)) + of_max[:, None]
    return 2 * inner * scale, inner * x


soft.defvjp(soft_forward, soft_backward)


@jax.custom_vjp
def weighed(x: Any, w: Any) -> Any:
    return x @ w


weighed.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, slope: (slope @ kept[1].T, 5 * kept[0].T @ slope))


@jax.custom_jvp
def signed(x: Any) -> Any:
    """Two results, as `slogdet` has them, of which one has no slope; the derivative calls the function."""
    return jnp.sign(x.sum(-1)), jnp.log(jnp.abs(jnp.cumsum(x, -1)))


@signed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    sign, size = signed(x)
    return (sign, size), (jnp.zeros(sign.shape), jnp.cumsum(moved, -1) / jnp.cumsum(x, -1))


@jax.custom_jvp
def around(x: Any) -> Any:
    """Its derivative calls it and a function whose derivative calls that one."""
    return unit(x).cumsum(-1)


@around.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    return around(x), (around(x) + 2 * unit(x)) * moved


@jax.custom_jvp
def twice_signed(x: Any) -> Any:
    """Its derivative calls another that has a derivative and asks where its block lies, as its own does."""
    return 2 * signed(x)[1], jnp.sign(x.sum(-1))


@twice_signed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    sign, size = signed(x)
    return twice_signed(x), (size * moved + sign[:, None] * jnp.cumsum(moved, -1), jnp.zeros(sign.shape))


@jax.custom_jvp
def masked(x: Any) -> Any:
    """Its derivative replaces single cells of what moves, by which JAX transposes where each is promised to be one."""
    return jnp.sin(x)


@masked.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    rows = jnp.array([9, 2, 12])
    return masked(x), moved.at[0].set(0).at[rows].set(0, unique_indices=True)


def all_signed(x: Any) -> Any:
    sign, size = signed(x)
    return sign[:, None] * size


# The function, its arguments, plans, and the dimensions that can be cut.
CASES: dict[str, Any] = {
    "a derivative that calls its function": (unit, (X,), [{"x_0": "b"}, {"x_0": ("a", tp.chunks(2))}], {"x_0"}),
    "a result that is dropped": (lambda x: signed(x)[1], (X**2,), [{}, {"x_0": "b"}, {"x_0": tp.chunks(3)}], {"x_0"}),
    "a result without a slope": (all_signed, (X**2,), [{}, {"x_0": "b"}], {"x_0"}),
    "a derivative that calls one with places": (
        lambda x: twice_signed(x)[0],
        (X**2,),
        [{}, {"x_0": "b"}, {"x_0": tp.chunks(3)}],
        {"x_0"},
    ),
    "determinants": (
        lambda x: jnp.linalg.slogdet(x)[1],
        (SOURCE.standard_normal((5, 3, 3)).astype("f4"),),
        [{}, {"x_0": "a"}, {"x_0": tp.chunks(2)}],
        {"x_0"},
    ),
    "a derivative that replaces cells": (masked, (X,), [{"x_0": "b"}, {"x_0": tp.chunks(3)}], {"x_0"}),
    "a derivative that calls another": (around, (X,), [{}, {"x_0": "b"}], {"x_0"}),
    "under vmap": (
        jax.vmap(unit),
        (SOURCE.standard_normal((3, 5, 4)).astype("f4"),),
        [{"x_0": "a", "x_1": "b"}],
        {"x_0", "x_1"},
    ),
    "its derivative in what is lifted": (
        lambda x: jax.grad(lambda x: (unit(x) ** 3).sum())(x),
        (X,),
        [{"x_0": "b"}],
        {"x_0"},
    ),
    "what is pulled back": (
        lambda x, scale: soft(x, scale)[0],
        (X, np.broadcast_to(SOURCE.uniform(1, 2, (13, 1)).astype("f4"), (13, 6))),
        [{"x_0": "b"}],
        {"x_0"},
    ),
    "what sums over rows is whole": (weighed, (X, W), [], set()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_with_a_derivative_of_its_own_is_cut_where_both_map(name: str) -> None:
    function, args, plans, cut = CASES[name]
    graph = agrees(function, *args, plans=plans)
    assert {dim for dim in dims(graph) if dim in cut} == cut
    assert (graph.opaque() == ()) == bool(cut)


def test_second_derivatives_go_through_the_rule() -> None:
    graph = tp.lift(unit, X)
    run = tp.plan(graph, tp.mesh(a=2, b=4), {"x_0": "b"}).compile()

    def curved(function: Any) -> Any:
        slope = jax.grad(lambda x: (function(x) ** 3).sum())
        return jax.jit(jax.grad(lambda x: (slope(x) * jnp.arange(6.0)).sum()))(X)

    np.testing.assert_allclose(curved(run), curved(unit), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(curved(graph), curved(unit), rtol=1e-4, atol=1e-4)


def test_a_derivative_with_a_large_constant_stays_opaque() -> None:
    table = jnp.ones((600, 600))

    @jax.custom_jvp
    def looked(x: Any) -> Any:
        return x.sum(-1)

    looked.defjvp(lambda primals, tangents: (looked(*primals), (tangents[0] * table[:13, :6]).sum(-1)))
    (found,) = tp.lift(looked, X).opaque()
    assert found.primitive == "custom_jvp_call"


def test_a_function_without_results_is_nothing() -> None:
    @jax.custom_jvp
    def nothing(x: Any) -> Any:
        del x
        return ()

    nothing.defjvp(lambda primals, tangents: ((), ()))
    graph = tp.lift(lambda x: (x * 2, nothing(x))[0], X)
    np.testing.assert_array_equal(graph(X), X * 2)


def test_derivatives_that_hold_others_without_an_end_are_left_to_jax():
    made = []

    def function(n):
        made.append(n)

        @jax.custom_jvp
        def sorted_by(x):
            return jnp.sort(x) * n

        @sorted_by.defjvp
        def _(primals, tangents):
            return sorted_by(*primals), function(n + 1)(primals[0]) * tangents[0]

        return sorted_by

    (found,) = tp.lift(function(1), jnp.ones((4, 4))).opaque()
    assert found.primitive == "custom_jvp_call" and len(made) < 20
