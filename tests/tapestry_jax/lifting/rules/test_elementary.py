"""Rules of primitives cell by cell, views, reshapes, products and reductions: lifted, planned, differentiated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.sharding import SingleDeviceSharding

import tapestry_jax as tp
from tapestry_jax.lifting.rules import cellwise
from tapestry_jax.lifting.table import RULES
from tests.tapestry_jax.lifting.agree import agrees

_SOURCE = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return _SOURCE.standard_normal(shape).astype(np.float32)


X, W = floats(4, 6), floats(6, 3)

CASES: dict[str, tuple[Any, ...]] = {
    "mlp": (lambda x, w, v: jax.nn.relu(x @ w) @ v, floats(8, 4), floats(4, 6), floats(6, 2)),
    "sizes that do not divide": (lambda x, w: jnp.tanh(x @ w), floats(7, 5), floats(5, 3)),
    "sizes of 1": (lambda x, w: jnp.tanh(x @ w).sum(0), floats(1, 5), floats(5, 1)),
    "sizes of 0": (lambda x, w: (x @ w) + 1, floats(0, 4), floats(4, 3)),
    "softmax": (lambda x: jax.nn.softmax(x, -1), X),
    "normalised": (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5), X),
    "square weights, twice": (lambda x, w: x + jax.nn.gelu(x @ w) @ w.T, X, floats(6, 6)),
    "a tensor with itself": (lambda x: jax.nn.softmax((x @ x.swapaxes(-1, -2)) * 0.3) @ x, floats(2, 4, 6)),
    "its own transpose": (lambda x: x + x.T, floats(4, 4)),
    "split, moved, merged": (lambda x: x.reshape(2, 4, 3, 2).transpose(0, 2, 1, 3).reshape(2, 3, 8), floats(2, 4, 6)),
    "sizes without a common divisor": (lambda x: (x * 2).reshape(6, 4) * 3, X),
    "a mask of positions": (lambda x: jnp.where(jnp.tril(jnp.ones((4, 4), bool)), x @ x.T, -1e9).max(-1), X),
    "extrema and where they lie": (lambda x: (x.max(0), x.min(1), x.prod(1), x.argmax(0), x.argmin(1)), X),
    "derivatives of their own": (lambda x: (jax.nn.relu6(x), jax.nn.softplus(x), jax.nn.elu(x), jax.nn.silu(x)), X),
    "derivatives of their own, mapped": (lambda x: jax.vmap(lambda x: jax.nn.relu(x) + jax.nn.softplus(x))(x), X),
    "a constant array": (lambda x: x * np.arange(24.0, dtype=np.float32).reshape(4, 6), X),
    "nothing at all": (lambda x: (x, jnp.zeros(3)), X),
    "numbers": (lambda x: x * 2.0 + x.sum(), floats(4)),
    "truth": (lambda x: ((x > 0).any(0), (x > 0).all(1)), X),
    "a derivative of its own, and results of which one has none": (lambda x: jnp.frexp(x)[0] + jnp.frexp(x)[1], X),
    "where tensors lie": (
        lambda x: jax.lax.with_sharding_constraint(x * 2, SingleDeviceSharding(jax.devices()[0])) + 1,
        X,
    ),
    "extrema of truth and of one": (lambda x: ((x > 0).argmax(1), x[:1].argmax(0), x[:, :1].argmin(1)), X),
    "gradients that meet, of which one spreads": (
        lambda x, c: jax.grad(lambda x: (x.sum(0) * c).sum() + jnp.sin(x).sum())(x),
        X,
        X[0],
    ),
    "a program for every platform": (
        lambda x: jnp.diagonal(x) + jax.lax.platform_dependent(x[0], tpu=lambda x: x * 3, default=lambda x: x * 2),
        floats(4, 4),
    ),
    "put on a device": (lambda x: jax.device_put(x * 2) + 1, X),
    "collectives over a mapped axis": (
        lambda x: jax.vmap(
            lambda r: (r - lax.pmean(r, "i"), lax.pmax(lax.stop_gradient(r).sum(), "i"), lax.psum((r, r * 2), "i")),
            axis_name="i",
        )(x),
        X,
    ),
    "computed again": (lambda x: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(x), X),
}


# Rules that others have rows of their own for.
THOROUGH = ("mlp", "square weights, twice", "a mask of positions")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in CASES]
)
def test_every_cut_of_what_is_lifted_gives_what_the_function_gives(name: str) -> None:
    function, *args = CASES[name]
    assert agrees(function, *args).opaque() == ()


def test_conversions_that_are_differentiated_inside_of_a_loop_lie_nowhere() -> None:
    def short(row: Any, w: Any) -> Any:
        return ((row @ w.astype(jnp.bfloat16)).astype(jnp.float32) ** 2).sum()

    def slopes(x: Any, w: Any) -> Any:  # JAX writes a sharding into the conversion of a cotangent
        return lax.scan(lambda s, row: (s + jax.grad(short, 1)(row, w), None), w, x)[0]

    x, w = np.sign(X).astype(jnp.bfloat16), np.sign(W)
    assert agrees(slopes, x, w, grads=False).opaque() == ()


def test_no_rule_of_another_family_takes_a_primitive_that_acts_cell_by_cell() -> None:
    assert {name for name, rule in cellwise.TABLE.items() if RULES[name] is not rule} == set()


@jax.custom_jvp
def beside(x: Any) -> Any:
    return x * 2, jnp.float32(3)


beside.defjvp(lambda primals, tangents: (beside(primals[0]), (tangents[0] * 5, jnp.float32(0))))


@jax.custom_jvp
def scaled(x: Any, by: Any) -> Any:
    return x * by


def by_the_first_alone(primals: Any, tangents: Any) -> Any:
    if not isinstance(tangents[1], SymbolicZero):
        raise RuntimeError("the second is fixed")
    return scaled(*primals), 3 * tangents[0]


scaled.defjvp(by_the_first_alone, symbolic_zeros=True)


def test_a_derivative_that_refuses_an_operand_is_asked_by_the_others_alone() -> None:
    graph = tp.lift(scaled, X, X)
    assert [found.primitive for found in graph.opaque()] == ["custom_jvp_call"]
    assert (jax.jit(jax.grad(lambda x: graph(x, X).sum()))(jnp.asarray(X)) == 3).all()
    with pytest.raises(RuntimeError, match="the second is fixed"):
        jax.grad(lambda by: graph(X, by).sum())(jnp.asarray(X))


def test_a_function_with_a_derivative_of_its_own_keeps_the_shapes_of_its_results() -> None:
    assert [found.primitive for found in agrees(beside, X, plans=[]).opaque()] == ["custom_jvp_call"]


def test_what_follows_a_program_that_no_rule_knows_can_be_cut() -> None:
    def branches(x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda x: x / x.sum(), lambda x: x * 3, x) + 1

    assert len(agrees(branches, X, plans=[{"cond": "a"}, {"cond_1": ("b", "a")}]).opaque()) == 1
