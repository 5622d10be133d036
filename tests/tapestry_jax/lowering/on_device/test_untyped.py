"""Kernels of Pallas that say nothing of the mesh run inside of an SPMD program, with the derivatives they have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import tapestry_jax as tp
from tapestry_jax.lowering.on_device import untyped
from tests.contract import assert_contract, assert_same

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def _product(a: Any, b: Any, out: Any) -> None:
    out[...] = a[...] * b[...]


def _pallas(a: Any, b: Any) -> Any:
    return pl.pallas_call(_product, out_shape=jax.ShapeDtypeStruct(a.shape, a.dtype), interpret=True)(a, b)


@jax.custom_vjp
def scaled(x: Any, w: Any, at: Any) -> Any:
    """Rows times weights and their number, by Pallas, with a derivative of its own that is Pallas as well."""
    return _pallas(_pallas(x, jnp.broadcast_to(w, x.shape)), jnp.broadcast_to(1.0 + at[:, None], x.shape))


def _forward(x: Any, w: Any, at: Any) -> Any:
    return scaled(x, w, at), (x, w, at)


def _backward(kept: Any, cotangent: Any) -> Any:
    x, w, at = kept
    given = _pallas(cotangent, jnp.broadcast_to(1.0 + at[:, None], x.shape))
    return _pallas(given, jnp.broadcast_to(w, x.shape)), jnp.sum(_pallas(given, x), axis=0), None


scaled.defvjp(_forward, _backward)


def _reference(x: Any, w: Any) -> Any:
    return x * w * (1 + jnp.arange(x.shape[0]))[:, None]


@pytest.mark.parametrize("entries", [{"i": ("data", tp.chunks(2)), "k": "model"}, {}])
def test_a_kernel_that_calls_pallas_keeps_its_value_gradient_and_collectives(mesh2x4: Any, entries: Any) -> None:
    graph = tp.trace(tp.Map(scaled, "i k, k, @i -> i k"), X, X[0])
    plan = tp.plan(graph, mesh2x4, entries)
    assert_contract(plan)
    assert_same(plan, (X, X[0]), reference=_reference)


def test_maps_over_the_program_go_through(mesh2x4: Any) -> None:
    run = tp.plan(tp.trace(tp.Map(scaled, "i k, k, @i -> i k"), X, X[0]), mesh2x4, {"i": "data"}).compile()
    both = jnp.stack([X, 2 * X])

    def total(function: Any) -> Any:
        return jax.jit(jax.vmap(jax.grad(lambda x, w: jnp.sum(jnp.cos(function(x, w))), (0, 1)), (0, None)))

    for found, wanted in zip(total(run)(both, X[0]), total(_reference)(both, X[0]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_other_errors_of_a_kernel_are_told(mesh2x4: Any) -> None:
    def refuses(x: Any) -> Any:
        if x.shape[0] < 8:
            raise ValueError("blocks of four rows are too few")
        return x

    plan = tp.plan(tp.trace(tp.Map(refuses, "i k -> i k"), X), mesh2x4, {"i": "data"})
    with pytest.raises(tp.TapestryError, match="blocks of four rows are too few"):
        plan.compile()(X)


def _total(rows: Any) -> Any:
    """Summed one by one, from a constant."""
    return lax.scan(lambda total, row: (total + row, None), jnp.zeros(rows.shape[1:], rows.dtype), rows)[0]


@jax.custom_vjp
def scaled_by_loops(x: Any, w: Any) -> Any:
    """Rows times weights, with a derivative that is a loop."""
    return x * w


scaled_by_loops.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, given: (given * kept[1], _total(kept[0] * given)))


@jax.custom_jvp
def doubled_by_loops(x: Any) -> Any:
    return 2 * x


@doubled_by_loops.defjvp
def _(given: Any, moved: Any) -> Any:
    (x,), (t,) = given, moved
    return 2 * x, lax.fori_loop(0, 2, lambda _, total: total + t, jnp.zeros(x.shape, x.dtype))


@pytest.mark.parametrize(
    "entries", [{"i": "data"}, {"i": ("data", tp.chunks(2)), "k": "model"}, {"k": ("data", "model")}, {}]
)
def test_derivatives_that_are_loops_from_constants_are_taken(mesh2x4: Any, entries: Any) -> None:
    plan = tp.plan(tp.trace(tp.Map(scaled_by_loops, "i k, k -> i k"), X, X[0]), mesh2x4, entries)
    assert_contract(plan)
    assert_same(plan, (X, X[0]), reference=lambda x, w: x * w)


def test_folds_of_such_are_taken(mesh2x4: Any) -> None:
    arrow = tp.Reduce(lambda x, w: scaled_by_loops(x, w).sum(0), "i k, k -> k", tp.monoids.Sum)
    plan = tp.plan(tp.trace(arrow, X, X[0]), mesh2x4, {"i": "data", "k": "model"})
    assert_contract(plan)
    assert_same(plan, (X, X[0]), reference=lambda x, w: (x * w).sum(0))


def test_second_derivatives_of_such_are_taken(mesh2x4: Any) -> None:
    graph = tp.trace(tp.Map(lambda x, w: scaled_by_loops(x, w) * x, "i k, k -> i k"), X, X[0])
    run = tp.plan(graph, mesh2x4, {"i": "data", "k": "model"}).compile()

    def turned(function: Any) -> Any:
        return jax.jit(jax.grad(lambda w: jnp.sin(jax.grad(lambda x: function(x, w).sum())(X)).sum()))(X[0])

    np.testing.assert_allclose(turned(run), turned(lambda x, w: x * w * x), rtol=1e-5, atol=1e-6)


def test_rules_of_custom_jvp_that_are_loops_are_taken(mesh2x4: Any) -> None:
    plan = tp.plan(tp.trace(tp.Map(doubled_by_loops, "i k -> i k"), X), mesh2x4, {"i": "data", "k": "model"})
    assert_contract(plan)
    assert_same(plan, (X,), reference=lambda x: 2 * x)


def test_a_derivative_that_raises_raises_where_it_is_taken(mesh2x4: Any) -> None:
    @jax.custom_vjp
    def broken(x: Any) -> Any:
        return x

    broken.defvjp(lambda x: (x, None), lambda _, given: 1 / 0)
    run = tp.plan(tp.trace(tp.Map(broken, "i k -> i k"), X), mesh2x4, {"i": "data"}).compile()
    np.testing.assert_array_equal(run(X), X)
    with pytest.raises(ZeroDivisionError):
        jax.grad(lambda x: run(x).sum())(X)


def test_functions_of_jax_keep_their_derivative_in_loops_from_constants(mesh2x4: Any) -> None:
    def added(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, total: total + jax.nn.relu(x), jnp.zeros(x.shape, x.dtype))

    plan = tp.plan(tp.trace(tp.Map(added, "i k -> i k"), X), mesh2x4, {"i": "data", "k": "model"})
    assert_contract(plan)
    assert_same(plan, (X,), reference=lambda x: 2 * jax.nn.relu(x))


def test_of_one_kernel_and_blocks_derivatives_are_asked_for_once(mesh2x4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def is_derived(kernel: Any, blocks: Any) -> bool:
        asked.append([each.shape for each in blocks])
        return own(kernel, blocks)

    own = vars(untyped)["_is_derived"]
    monkeypatch.setattr(untyped, "_is_derived", is_derived)
    scale = tp.Map(scaled_by_loops, "i k, k -> i k", name="of this test alone")
    graph = tp.trace(lambda x, w: scale(scale(x, w), w), X, X[0])
    for entries in ({"i": "data"}, {"i": "data"}, {"i": "data", "k": "model"}):
        tp.plan(graph, mesh2x4, entries).memory(grad=True)
    # Both ways of both kinds of blocks; not for two operations, nor in two plans.
    assert asked == [[(4, 4), (4,)]] * 2 + [[(4, 1), (1,)]] * 2
