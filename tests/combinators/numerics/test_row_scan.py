"""Long scans, by two passes over rows, against the loops of jax.lax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import combinators as tp
from combinators.numerics import row_scan

# One step more than whole rows, and enough rows for their totals to be scanned by rows in their turn.
LENGTH = row_scan.ROWS.length * row_scan.ROWS.least + 1


def recurrence(**ends):
    return tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d, t d", over="t", **ends)


def steps(length, *shape):
    rng = np.random.default_rng(length)
    return tuple(rng.uniform(0.2, 1.1, (length, *shape)).astype(np.float32) for _ in range(2))


def loop(a, b, *, reverse, exclusive):
    """`h = a h + b`; reversed, the earlier step still acts last."""

    def turn(state, step):
        scale, shift = state
        merged = (scale * step[0], scale * step[1] + shift) if reverse else (step[0] * scale, step[0] * shift + step[1])
        return merged, state if exclusive else merged

    start = jnp.ones(a.shape[1:]), jnp.zeros(a.shape[1:])
    return lax.scan(turn, start, (a, b), reverse=reverse)[1]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_long_scan_is_the_loop(reverse, exclusive):
    a, b = steps(LENGTH, 1)
    found = jax.jit(recurrence(reverse=reverse, exclusive=exclusive))(a, b)
    for ours, theirs in zip(found, loop(a, b, reverse=reverse, exclusive=exclusive), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-30)


def test_long_scan_has_the_gradients_of_the_loop():
    a, b = steps(row_scan.ROWS.least + 7, 2)
    weights = np.cos(np.arange(2 * len(a))).reshape(-1, 2)
    ours, theirs = (
        jax.jit(jax.grad(lambda a, b, run=run: jnp.sum(run(a, b)[1] * weights), argnums=(0, 1)))(a, b)
        for run in (recurrence(), lambda a, b: loop(a, b, reverse=False, exclusive=False))
    )
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
def test_long_scan_keeps_the_order_of_matrices(reverse):
    # Rotations and shears, which do not commute; the scanned dimension is the last one of the steps.
    angle = np.random.default_rng(0).normal(size=row_scan.ROWS.least + 33).astype(np.float32)
    turns = np.stack([np.stack([np.cos(angle), -np.sin(angle)]), np.stack([np.sin(angle), np.cos(angle)])])
    matrices = (turns * np.float32(0.999)).astype(np.float32)
    matrices[0, 1] += 0.01
    monoid = tp.Monoid(lambda cell: jnp.eye(2, dtype=cell.dtype), jnp.matmul, name="MatrixProduct")
    scan = tp.Scan(monoid, "[i] [j] t -> [i] [j] t", over="t", reverse=reverse)
    found = jax.jit(scan)(matrices)

    def turn(state, step):
        state = step @ state if reverse else state @ step
        return state, state

    wanted = lax.scan(turn, jnp.eye(2), np.moveaxis(matrices, -1, 0), reverse=reverse)[1]
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), wanted, rtol=1e-3, atol=1e-4)


def test_long_scan_of_sums_is_the_primitive():
    x = jnp.arange(2 * row_scan.ROWS.least, dtype=jnp.int32)
    jaxpr = str(jax.make_jaxpr(tp.Scan(tp.monoids.Sum, "t -> t", over="t"))(x))
    assert "cumsum" in jaxpr
    assert "scan[" not in jaxpr


def test_how_long_scans_are_cut_follows_the_machine():
    by_rows = [row_scan.rows_on(()), row_scan.rows_on(("cpu",)), row_scan.rows_on(("cpu", "tpu"))]
    assert by_rows == [row_scan.ROWS] * 3
    assert [row_scan.rows_on(each) for each in (("tpu",), ("cuda",), ("rocm", "tpu"))] == [None] * 3
