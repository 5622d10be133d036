"""The contract on kernels that the library knows nothing about, on coordinates and on random numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_exports, assert_holds, assert_same, inside
from tests.tapestry_jax.draw import named, normal


def unit(x, scale):
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True) * scale


@pytest.mark.parametrize("batch", [*(pytest.param(batch, marks=pytest.mark.thorough) for batch in (8, 7)), 3])
def test_contract_norm_of_padding_is_finite(mesh2x4, batch):
    # Zero padding would make 0 / 0, and its gradient would reach the shared scale as NaN.
    args = (normal(batch, 5), normal(5, seed=1))
    normalise = tp.Map(unit, "b [e], [e] -> b [e]")
    graph = tp.trace(normalise, *named("b e, e", *args))
    plan = tp.plan(graph, mesh2x4, {"b": ("data", "model")})
    assert_holds(plan, args, reference=lambda x, s: x / np.linalg.norm(x, axis=-1, keepdims=True) * s)
    _, gradient = jax.jit(jax.grad(lambda x, s: jnp.sum(plan.compile()(x, s)), (0, 1)))(*args)
    assert np.all(np.isfinite(gradient))


def log_mean(x, w):
    """A state that zero padding would ruin: the logarithm of each row, weighted."""
    return jnp.sum(jnp.log(jnp.sum(x * x, 1)) * w)


@pytest.mark.parametrize("rows", [pytest.param(16, marks=pytest.mark.thorough), 9])
def test_contract_opaque_fold(mesh2x4, rows):
    args = (normal(rows, 3), normal(rows, seed=1))
    reduce = tp.Reduce(log_mean, "row [col], row ->", tp.monoids.Sum)
    plan = tp.plan(tp.trace(reduce, *named("row col, row", *args)), mesh2x4, {"row": ("model", "data")})
    assert_holds(plan, args, reference=lambda x, w: np.sum(np.log(np.sum(np.square(x), 1)) * w))


def test_contract_opaque_fold_over_two_uneven_dimensions(mesh2x4):
    # Nine branches: three counts of valid rows by three of columns.
    def logs(x):
        return jnp.sum(jnp.log(x), (0, 1))

    args = (jnp.exp(normal(3, 5, 2)),)
    reduce = tp.Reduce(logs, "a b c -> c", tp.monoids.Sum)
    plan = tp.plan(tp.trace(reduce, *named("a b c", *args)), mesh2x4, {"a": "data", "b": "model"})
    assert_holds(plan, args, reference=lambda x: np.log(x).sum((0, 1)))


def test_contract_several_results(mesh2x4):
    def polar(x, y):
        return jnp.hypot(x, y), jnp.arctan2(y, x)

    args = (normal(5, 6), normal(5, 6, seed=1))
    both = tp.Map(polar, "a b, a b -> a b, a b")
    plan = tp.plan(tp.trace(both, *named("a b, a b", *args)), mesh2x4, {"a": "data", "b": "model"})
    assert_holds(plan, args, reference=lambda x, y: (np.hypot(x, y), np.arctan2(y, x)))


def test_contract_coordinates(mesh2x4):
    # Rotary positions: a kernel that reads where it is.
    def rotate(x, at):
        angle = at[:, None] / 10.0 ** jnp.arange(x.shape[-1] // 2)
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1)

    args = (normal(2, 7, 4),)
    rope = tp.Map(rotate, "b t [d], @t -> b t [d]")

    def reference(x):
        x = np.asarray(x)
        z = x[..., :2] + 1j * x[..., 2:]
        z = z * np.exp(1j * np.arange(7)[:, None] / 10.0 ** np.arange(2))
        return np.concatenate([z.real, z.imag], -1)

    plan = tp.plan(tp.trace(rope, *named("b t d", *args)), mesh2x4, {"b": "data", "t": "model"})
    assert_holds(plan, args, reference=reference)


def test_contract_index_and_one_hot(mesh2x4):
    # Embedding lookup as a fold over the vocabulary, by coordinates.
    tokens = jnp.asarray(np.int32(np.random.default_rng(0).integers(0, 11, (3, 6))))
    args = (tokens, normal(11, 4))

    def embed(tokens, table, at):
        return jnp.einsum("btv,ve->bte", (tokens[..., None] == at).astype(table.dtype), table)

    lookup = tp.Reduce(embed, "b t, v e, @v -> b t e", tp.monoids.Sum)

    def program(tokens, table):
        return lookup(tokens, table), tp.index("t", tokens) * 2

    graph = tp.trace(program, *named("b t, v e", *args))
    plan = tp.plan(graph, mesh2x4, {"v": "model", "t": "data"})
    assert_holds(plan, args, reference=lambda tokens, table: (np.asarray(table)[tokens], np.arange(6) * 2))


@pytest.mark.parametrize("shape", [pytest.param((8, 4), marks=pytest.mark.thorough), (7, 5)])
def test_contract_random_bits_are_those_of_the_unplanned_program(mesh2x4, shape):
    key = jax.random.key_data(jax.random.key(7))
    args = (normal(*shape), key)

    def program(x, key):
        kept = tp.random.bernoulli(key, 0.7, like=x)
        return tp.random.bits(key, like=x), kept, tp.random.uniform(key, like=x), x * tp.random.normal(key, like=x)

    graph = tp.trace(program, *named("b e, word", *args))
    plan = tp.plan(graph, mesh2x4, {"b": "data", "e": "model"})
    assert inside(plan) == ()
    assert_same(plan, args, grad=False, rtol=0, atol=0)
    assert_holds(plan, args)


def test_sums_of_bfloat16_and_of_integers(mesh2x4):
    # XLA's CPU backend adds bfloat16 in float32, so here the compiled bytes are twice those of the program.
    args = (normal(8, 6).astype(jnp.bfloat16), jnp.arange(24, dtype=jnp.int32).reshape(6, 4))

    def sums(x, n):
        total = tp.fold(tp.aggregators.Sum(), "k n -> n")(n)
        return tp.fold(tp.aggregators.Sum(), "i k -> k")(x), total

    plan = tp.plan(tp.trace(sums, *named("i k, k n", *args)), mesh2x4, {"i": "model", "k": "data"})
    assert_same(
        plan, args, rtol=2e-2, atol=2e-2, reference=lambda x, n: (np.sum(np.asarray(x, np.float32), 0), np.sum(n, 0))
    )
    assert_exports(plan)
    assert {each.bytes for each in plan.collectives() if each.path == "Sum_1"} == {3 * 2}
