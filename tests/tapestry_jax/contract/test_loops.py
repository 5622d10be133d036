"""The contract on loops: stacked layers and iterated steps, whose collectives run once a turn.

Thorough: even sizes, and stacked layers over two mesh axes; in every run an iterated step lies over both, and layers
are stacked in two plans of one axis, in test_remat_scopes.py over both.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_holds, inside
from tests.tapestry_jax.draw import named, normal

gelu = tp.Map(jax.nn.gelu)
matmul = tp.einsum("i k, k n -> i n")
TURNS = 3


@tp.program("b e, e f, f g -> b e")
def layer(x, w, v):
    return x + matmul(gelu(matmul(x, w)), v).rename(g="e")


def deep(x, ws, vs):
    return tp.stack(layer, TURNS)(x, ws, vs)


@jax.jit
def reference_deep(x, ws, vs):
    for w, v in zip(ws, vs, strict=True):
        x = x + jax.nn.gelu(x @ w) @ v
    return x


def arguments(batch, width):
    ws, vs = normal(TURNS, width, 8, scale=0.3), normal(TURNS, 8, width, seed=1, scale=0.3)
    return normal(batch, width, seed=2), ws, vs


@pytest.mark.parametrize(
    ("sizes", "entries"),
    [
        pytest.param((8, 8), {"b": "data", "f": "model"}, marks=pytest.mark.thorough),
        pytest.param((5, 6), {"b": "data", "f": "model"}, marks=pytest.mark.thorough),
        pytest.param((5, 6), {"e": "model", "g": "model"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_contract_stacked_layers(mesh2x4, sizes, entries):
    args = arguments(*sizes)
    plan = tp.plan(tp.trace(deep, *named("b e, layer e f, layer f g", *args)), mesh2x4, entries)
    assert_holds(plan, args, reference=reference_deep)


def test_contract_collectives_of_a_loop_count_every_turn(mesh2x4):
    args = arguments(8, 8)
    plan = tp.plan(tp.trace(deep, *named("b e, layer e f, layer f g", *args)), mesh2x4, {"f": "model"})
    assert [(each.kind, each.times) for each in plan.collectives()] == [("all-reduce", TURNS)]


def test_contract_weights_stored_cut_are_gathered_every_turn(mesh8):
    # FSDP of a deep model: the batch is cut, and the layers' weights are stored over the same axis.
    args = arguments(8, 8)
    graph = tp.trace(deep, *named("b e, layer e f, layer f g", *args))
    stored = {"ws": {"e": "data"}, "vs": {"f": "data"}}
    assert_holds(tp.plan(graph, mesh8, {"b": "data"}, inputs=stored), args, reference=reference_deep)


@pytest.mark.parametrize("sizes", [pytest.param((8, 8), marks=pytest.mark.thorough), (5, 6)])
def test_contract_iterated_step_with_a_constant(mesh2x4, sizes):
    batch, width = sizes
    args = (normal(batch, width), normal(width, width, seed=1, scale=0.4))

    @tp.program("b e, e f -> b e")
    def step(x, w):
        return tp.Map(jnp.tanh)(matmul(x, w)).rename(f="e")

    def reference(x, w):
        for _ in range(TURNS):
            x = np.tanh(x @ w)
        return x

    graph = tp.trace(lambda x, w: tp.iterate(step, TURNS)(x, w), *named("b e, e f", *args))
    assert_holds(tp.plan(graph, mesh2x4, {"b": "data", "f": "model"}), args, reference=reference)


def test_contract_carry_that_stays_cut_is_scattered_every_turn(mesh8):
    args = (normal(5, 6), normal(6, 6, seed=1, scale=0.4))
    step = tp.program("b e, e f -> b e")(lambda x, w: matmul(x, w).rename(f="e"))
    graph = tp.trace(lambda x, w: tp.iterate(step, TURNS)(x, w), *named("b e, e f", *args))
    plan = tp.plan(graph, mesh8, {"e": "data"})
    assert_holds(plan, args, reference=lambda x, w: x @ np.linalg.matrix_power(w, TURNS))
    assert [(each.kind, each.times) for each in inside(plan)] == [("reduce-scatter", TURNS)]


def test_contract_loop_in_a_loop(mesh8):
    args = (normal(4, 6), normal(2, 6, 6, seed=1, scale=0.4))

    @tp.program("b e, e f -> b e")
    def step(x, w):
        return tp.Map(jnp.tanh)(matmul(x, w)).rename(f="e")

    def layers(x, w):
        return tp.iterate(step, TURNS)(x, w)

    def reference(x, ws):
        for w in ws:
            for _ in range(TURNS):
                x = np.tanh(x @ w)
        return x

    graph = tp.trace(lambda x, ws: tp.stack(layers, 2)(x, ws), *named("b e, layer e f", *args))
    plan = tp.plan(graph, mesh8, {"e": "data"})
    assert_holds(plan, args, reference=reference)
    assert sum(each.times for each in plan.collectives() if each.kind == "all-reduce") == 2 * TURNS


def test_contract_stencil_iterated(mesh8):
    # Every turn reads one row of each neighbour, and at the ends the row itself.
    def smooth(block):
        return (block[:-2] + 2 * block[1:-1] + block[2:]) / 4

    stencil = tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="edge")
    args = (normal(16, 3),)
    graph = tp.trace(tp.iterate(stencil, TURNS), *named("y x", *args))

    def reference(x):
        for _ in range(TURNS):
            padded = np.pad(np.asarray(x), ((1, 1), (0, 0)), mode="edge")
            x = smooth(padded)
        return x

    assert_holds(tp.plan(graph, mesh8, {"y": "data"}), args, reference=reference)
