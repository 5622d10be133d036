"""The contract on scans along cut dimensions: forwards, backwards, exclusive, over several mesh axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.numerics import row_scan
from tests.contract import assert_holds, assert_same, inside
from tests.tapestry_jax.draw import named, normal


def second(state):
    return state[1]


@pytest.mark.parametrize(
    ("length", "entries"),
    [
        pytest.param(16, {"t": ("data", "model")}, marks=pytest.mark.thorough),
        (13, {"t": ("data", "model")}),
        (3, {"t": "model"}),
    ],
    ids=str,
)
def test_contract_cumulative_sum(mesh2x4, length, entries):
    args = (normal(length, 4),)
    graph = tp.trace(tp.Scan(tp.monoids.Sum, "t d -> t d", over="t"), *named("t d", *args))
    assert_holds(tp.plan(graph, mesh2x4, entries), args, reference=lambda x: np.cumsum(x, 0))


@pytest.mark.parametrize(
    ("length", "reverse", "exclusive"),
    [
        pytest.param(16, False, False, id="prefixes", marks=pytest.mark.thorough),
        pytest.param(11, False, True, id="exclusive", marks=pytest.mark.thorough),
        pytest.param(11, True, False, id="reverse"),
        pytest.param(16, True, True, id="reverse exclusive", marks=pytest.mark.thorough),
    ],
)
def test_contract_affine_recurrence(mesh2x4, length, reverse, exclusive):
    # h -> a h + b. In reverse, the result at t composes the steps t, t + 1, ... to the last one, in this order.
    args = (jax.nn.sigmoid(normal(length, 3)), normal(length, 3, seed=1))
    scan = tp.Scan(
        tp.monoids.AffineRecurrence,
        "t d, t d -> t d",
        over="t",
        present=second,
        reverse=reverse,
        exclusive=exclusive,
    )

    def reference(a, b):
        rows = []
        for t in range(length):
            steps = range(t + exclusive, length) if reverse else range(t + 1 - exclusive)
            state = np.zeros(3, np.float32)
            for step in steps:
                state = np.asarray(a[step]) * state + np.asarray(b[step])
            rows.append(state)
        return np.stack(rows)

    axes = ("data", "model") if reverse else "model"
    plan = tp.plan(tp.trace(scan, *named("t d, t d", *args)), mesh2x4, {"t": axes})
    assert_holds(plan, args, reference=reference)


@pytest.mark.parametrize(
    ("length", "ends"),
    [
        # Forwards the tree of accelerators below goes, by rows as well.
        pytest.param(8 * 64, {}, id="even", marks=pytest.mark.thorough),
        pytest.param(8 * 50 - 3, {"reverse": True, "exclusive": True}, id="uneven", marks=pytest.mark.thorough),
    ],
)
def test_contract_recurrence_of_many_steps(mesh8, monkeypatch, length, ends):
    # Each device scans its steps by rows, and goes on from what the devices before it come to.
    monkeypatch.setattr(row_scan, "ROWS", row_scan.Rows(32, 40))
    args = (jax.nn.sigmoid(normal(length, 3)), normal(length, 3, seed=1))
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=second, **ends)

    def reference(a, b):
        if not ends:
            return lax.scan(lambda h, step: (step[0] * h + step[1],) * 2, jnp.zeros(3), (a, b))[1]
        # Suffixes of maps without the own step, the earlier one still acting last.
        start = jnp.ones(3), jnp.zeros(3)
        turn = lambda state, step: ((state[0] * step[0], state[0] * step[1] + state[1]), state[1])  # noqa: E731
        return lax.scan(turn, start, (a, b), reverse=True)[1]

    plan = tp.plan(tp.trace(scan, *named("t d, t d", *args)), mesh8, {"t": "data"})
    assert_holds(plan, args, reference=reference)


def test_contract_recurrence_by_the_tree_of_accelerators(mesh8, monkeypatch):
    monkeypatch.setattr(row_scan, "ROWS", row_scan.Rows(4, 16))
    args = (jax.nn.sigmoid(normal(8 * 18 - 3, 2)), normal(8 * 18 - 3, 2, seed=1))
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=second)

    def reference(a, b):
        return lax.scan(lambda h, step: (step[0] * h + step[1],) * 2, jnp.zeros(2), (a, b))[1]

    plan = tp.plan(tp.trace(scan, *named("t d, t d", *args)), mesh8, {"t": "data"}, platforms="tpu")
    assert_holds(plan, args, reference=reference)


def with_ones(a):
    return a, jnp.ones(a.shape)


def test_scan_of_many_steps_whose_states_vary_only_once_merged(mesh8, monkeypatch):
    # JAX wants the state of a loop to vary from the start over the mesh axes of its columns; the ones do not.
    monkeypatch.setattr(row_scan, "ROWS", row_scan.Rows(32, 40))
    args = (normal(69, 8),)
    scan = tp.Scan(
        tp.monoids.AffineRecurrence, "t d -> t d", over="t", kernel=with_ones, carrier="t d, t d", present=second
    )
    plan = tp.plan(tp.trace(scan, *named("t d", *args)), mesh8, {"d": "data"})
    assert plan.collectives(grad=True) == ()

    def reference(a):
        return lax.scan(lambda h, step: (step * h + 1,) * 2, jnp.zeros(8), a)[1]

    assert_same(plan, args, rtol=1e-3, reference=reference)


def test_contract_scan_of_three_devices_by_columns():
    args = (normal(8, 7),)
    graph = tp.trace(tp.Scan(tp.monoids.Max, "t d -> t d", over="t"), *named("t d", *args))
    plan = tp.plan(graph, tp.mesh(three=3, two=2), {"t": "three", "d": "two"})
    assert_holds(plan, args, reference=lambda x: np.maximum.accumulate(x, 0))


def test_contract_scan_whose_dimension_is_whole(mesh8):
    # Cut along the columns alone, a scan communicates nothing.
    args = (normal(6, 9),)
    graph = tp.trace(tp.Scan(tp.monoids.Sum, "t d -> t d", over="t", reverse=True), *named("t d", *args))
    plan = tp.plan(graph, mesh8, {"d": "data"})
    assert_holds(plan, args, reference=lambda x: np.cumsum(x[::-1], 0)[::-1])
    assert inside(plan, grad=True) == ()


def test_contract_product_of_matrices_up_to_every_step(mesh8):
    # Dense recurrences do not commute: order is kept across devices.
    decays, inputs = normal(11, 3, 3, scale=0.5), normal(11, 3, seed=1)
    scan = tp.Scan(tp.monoids.AffineRecurrenceDense, "t [i] [j], t [k] -> t [k]", over="t", present=second)

    def reference(a, b):
        state, rows = np.zeros(3, np.float32), []
        for matrix, vector in zip(np.asarray(a), np.asarray(b), strict=True):
            state = matrix @ state + vector
            rows.append(state)
        return np.stack(rows)

    graph = tp.trace(scan, *named("t i j, t i", decays, inputs))
    assert_holds(tp.plan(graph, mesh8, {"t": "data"}), (decays, inputs), reference=reference)


def test_contract_scan_that_begins_with_a_state_and_gives_the_last_one(mesh8):
    decays, inputs, start = jax.nn.sigmoid(normal(11, 3)), normal(11, 3, seed=1), normal(3, seed=2)

    def program(a, b, h):
        scan = tp.Scan(
            tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=second, init=(1, h), final=True
        )
        return scan(a, b)

    def reference(a, b, h):
        state, rows = np.asarray(h), []
        for decay, value in zip(np.asarray(a), np.asarray(b), strict=True):
            state = decay * state + value
            rows.append(state)
        return np.stack(rows), state

    graph = tp.trace(program, *named("t d, t d, d", decays, inputs, start))
    plan = tp.plan(graph, mesh8, {"t": "data"})
    assert_holds(plan, (decays, inputs, start), reference=reference)


def test_contract_running_mean_is_a_scan_and_a_map(mesh8):
    args = (normal(10, 3),)

    def running_mean(x):
        total = tp.Scan(tp.monoids.Sum, "t d -> t d", over="t")(x)
        count = tp.Map(jnp.reciprocal)(tp.index("t", x) + 1.0)
        return total * count

    graph = tp.trace(running_mean, *named("t d", *args))
    plan = tp.plan(graph, mesh8, {"t": "data"})
    assert_holds(plan, args, reference=lambda x: np.cumsum(x, 0) / np.arange(1, 11)[:, None])
