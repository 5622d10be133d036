"""Derivatives that are not linear: refused where a plan would call them for parts of what they pull back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.simulated.evaluate import simulated
from tests.tapestry_jax.draw import normal


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 1


@jax.custom_vjp
def scaled(x: Any) -> Any:
    return x * 1


clipped.defvjp(lambda x: (x * 1, None), lambda _, cotangent: (jnp.clip(cotangent, -0.5, 0.5),))
scaled.defvjp(lambda x: (x * 1, x), lambda x, cotangent: (cotangent * jnp.cos(x),))

window = tp.Map(lambda x: x[:-2] + x[1:-1] * 0.5 + x[2:], "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary="zero")


def layers(kernel: Any) -> tp.Graph:
    """Each turn reads what is computed of the weights of its layer."""

    @tp.program("batch embed, layer embed -> batch embed")
    def run(x: Any, scale: Any) -> Any:
        return tp.stack(lambda x, scale: tp.Map(jnp.tanh)(x * tp.Map(kernel)(scale)), 4)(x, scale)

    return tp.trace(run, jnp.ones((8, 3)), jnp.ones((4, 3)))


def steps(kernel: Any) -> tp.Graph:
    return tp.trace(tp.iterate(lambda x: window(tp.Map(kernel)(x)), 4), tp.TensorType({"y": 16}))


def differences(kernel: Any) -> tp.Graph:
    """A fold whose kernel reads each cell through two windows."""
    fold = tp.Reduce(lambda x: (jnp.diff(kernel(x)) ** 2).sum(0), "(y+[dy]) -> ", tp.monoids.Sum, sizes={"dy": 2})
    return tp.trace(fold, tp.TensorType({"y": 9}))


PLANS: list[Any] = [
    (differences, {"y": "a"}, "read through its windows by the blocks on both sides"),
    (differences, {"y": tp.chunks(4)}, "read through its windows by the blocks on both sides|in each turn over"),
    (layers, {"batch": tp.chunks(4)}, "in each turn over `batch`"),
    (layers, {"layer": "a", "batch": tp.chunks(4)}, "in each turn over `batch`"),
    (steps, {"y": ("a", tp.halo(depth=2))}, "behind a deep halo"),
]


@pytest.mark.parametrize(("program", "entries", "text"), PLANS)
def test_what_is_called_several_times_has_a_linear_derivative(program: Any, entries: Any, text: str) -> None:
    graph = program(clipped)
    args = [normal(*node.results[0].shape, seed=at) for at, node in enumerate(graph.inputs)]
    run = tp.plan(graph, tp.mesh(a=2), entries).compile()
    with pytest.raises(tp.PlanError, match=text):
        jax.eval_shape(jax.grad(lambda *args: run(*args).sum(), len(args) - 1), *args)
    jax.eval_shape(run, *args)


@pytest.mark.parametrize(("program", "entries", "text"), PLANS)
def test_a_linear_one_is_called_for_parts(program: Any, entries: Any, text: str) -> None:
    del text
    graph = program(scaled)
    args = [normal(*node.results[0].shape, seed=at) for at, node in enumerate(graph.inputs)]
    run = tp.plan(graph, tp.mesh(a=2), entries).compile()
    every = tuple(range(len(args)))
    slopes = [simulated(jax.grad(lambda *args, of=of: of(*args).sum(), every), *args) for of in (run, graph)]
    for got, want in zip(*slopes, strict=True):
        assert jnp.allclose(got, want, rtol=1e-4, atol=1e-5)


def test_one_that_is_called_once_may_be_any() -> None:
    graph, x = steps(clipped), normal(16)
    run = tp.plan(graph, tp.mesh(a=2), {"y": "a"}).compile()
    got, want = (simulated(jax.grad(lambda x, of=of: of(x).sum()), x) for of in (run, graph))
    assert jnp.allclose(got, want, rtol=1e-5)


def test_a_loss_in_chunks_pulls_back_its_own_cotangent() -> None:
    total = tp.Reduce(lambda x: clipped(x).sum(0), "y -> ", tp.monoids.Sum)
    graph, x = tp.trace(total, jnp.ones(6)), normal(6)
    run = tp.plan(graph, tp.mesh(a=2), {"y": tp.chunks(3)}).compile()
    assert jnp.allclose(simulated(jax.grad(lambda x: run(x) * 3), x), 0.5)
