"""Programs run in NumPy on all devices at once give what XLA's compiled ones do."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import tapestry_jax as tp
from tapestry_jax.shards.numeric.devices import DivergenceError
from tests.simulated.evaluate import simulated
from tests.tapestry_jax.draw import named, normal


def assert_simulated(function: Any, *args: Any) -> None:
    found, expected = simulated(function, *args), jax.jit(function)(*args)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, expected)


def test_a_planned_program_and_its_gradient(mesh2x4):
    # Chunks, a ring, a scan over the mesh, a framed fold and an exchange of neighbours, over sizes that do not divide.
    def program(x, w):
        x = tp.Scan(tp.monoids.Sum, "a b -> a b", over="a")(x)
        y = tp.einsum("a b, b c -> a c")(x, w)
        smooth = tp.window(tp.aggregators.Sum(), 3, "a c -> a c", over="a")(tp.Map(jnp.tanh)(y))
        return y - tp.fold(tp.aggregators.LogSumExp(), "a c -> c")(y), smooth

    args = normal(7, 3), normal(3, 4, seed=1)
    graph = tp.trace(program, *named("a b, b c", *args))
    entries = {"a": ("model", tp.chunks(2)), "c": "data", "b": tp.ring("data")}
    run = tp.plan(graph, mesh2x4, entries).compile().jitted

    def value_and_gradients(args, weights):
        values, pull = jax.vjp(run, *args)
        return values, pull(weights)

    assert_simulated(value_and_gradients, args, (normal(7, 4, seed=2), normal(7, 4, seed=3)))


def test_collectives_along_axes_in_any_order(mesh2x4):
    def device(x):
        size, axes = x.shape[0], ("model", "data")
        gathered = lax.all_gather(x, axes, axis=0, tiled=True)
        scattered = lax.psum_scatter(gathered, axes, scatter_dimension=0, tiled=True)
        moved = lax.all_to_all(x.reshape(8, -1), axes, 0, 0, tiled=True)
        # It counts in the order of the mesh, in whatever order axes are listed; JAX 0.12 refuses any other.
        listed = axes if jax.__version_info__ < (0, 12) else axes[::-1]
        shifted = lax.ppermute(x, listed, [(i, i + 1) for i in range(7)])
        top = lax.pmax(x, "data") - lax.pmin(x, "data") + lax.psum(x, "data")
        place = jnp.full(size, lax.axis_index(axes))
        return gathered[:size] * place + scattered, moved.ravel(), shifted, top

    blocks = P(("data", "model"))
    # The outer axis is invisible to the type of the last one, which is the same along `data`.
    specs = (blocks, blocks, blocks, P("model"))
    assert_simulated(jax.shard_map(device, mesh=mesh2x4, in_specs=blocks, out_specs=specs), normal(64))


def test_collectives_along_inner_axes_of_a_block(mesh2x4):
    def device(x):
        side = lax.all_gather(x, "model", axis=1, tiled=True)
        stacked = lax.all_gather(x, "model", axis=1)
        turned = lax.all_to_all(x, "model", 0, 1, tiled=True)
        return side[:, 3:7], stacked[:, 2] - stacked[:, 1], turned.reshape(8, -1)

    blocks = P(("data", "model"))
    assert_simulated(jax.shard_map(device, mesh=mesh2x4, in_specs=blocks, out_specs=blocks), normal(64, 3))


def test_loops_that_run_backwards_or_not_at_all(mesh8):
    def device(x):
        step = lambda carry, row: (carry * 0.5 + row, carry - row)  # noqa: E731
        back = lax.scan(step, x[0] * 0, x, reverse=True)
        none = lax.scan(step, x[0], x[:0])
        return back[0] + none[0], back[1], none[1]

    blocks = P("data")
    assert_simulated(jax.shard_map(device, mesh=mesh8, in_specs=blocks, out_specs=blocks), normal(24, 2))


def test_cases_outside_of_a_switch_are_the_nearest(mesh8):
    def device(x):
        return lax.switch(lax.axis_index("data") - 2, [jnp.sin, jnp.cos, jnp.exp], x)

    assert_simulated(jax.shard_map(device, mesh=mesh8, in_specs=P("data"), out_specs=P("data")), normal(16))


def test_control_flow_that_devices_take_differently(mesh8):
    def device(x):
        count = lax.axis_index("data")
        doubled = lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] * 2), (count * 0, x))[1]
        return lax.switch(count % 3, [jnp.sin, jnp.cos, jnp.sort], doubled)

    assert_simulated(jax.shard_map(device, mesh=mesh8, in_specs=P("data"), out_specs=P("data")), normal(16))


def test_indexing_and_dtypes():
    rows = jnp.asarray([3, -1, 9, 0])

    def function(x):
        taken = jnp.take(x, rows, axis=0, mode="fill"), jnp.take(x, rows, axis=1, mode="clip"), x[rows, rows]
        added = x.at[rows].add(1.5), x.at[:, rows].max(0.2), x.at[2:, 1].set(7)
        whole = jnp.rint(x * 9).astype(jnp.int32)
        bits = [
            merge(part, (0,)) for merge in (lax.reduce_or, lax.reduce_and, lax.reduce_xor) for part in (whole, x > 0)
        ]
        return (
            *taken,
            *added,
            *bits,
            whole // 4,
            whole % 3,
            lax.div(whole, 4),
            jnp.argsort(x, 0),
            jnp.pad(x, 1)[::2, ::-1],
        )

    assert_simulated(function, normal(5, 4))
    assert_simulated(jax.grad(lambda x: sum(jnp.sum(jnp.sin(leaf)) for leaf in function(x)[:6])), normal(5, 4))


def test_a_collective_that_not_all_devices_reach_is_an_error(mesh8):
    def device(x):
        return lax.cond(lax.axis_index("data") < 3, lambda x: lax.ppermute(x, "data", [(0, 1)]), lambda x: x + 1.0, x)

    run = jax.shard_map(device, mesh=mesh8, in_specs=P("data"), out_specs=P("data"))
    with pytest.raises(DivergenceError):
        simulated(run, normal(8))


def test_a_collective_in_a_loop_that_some_devices_leave_earlier_is_an_error(mesh8):
    def device(x):
        count = lax.axis_index("data")
        turn = lambda s: (s[0] + 1, s[1] + lax.ppermute(s[1], "data", [(0, 1)]))  # noqa: E731
        return lax.while_loop(lambda s: s[0] < count, turn, (count * 0, x))[1]

    run = jax.shard_map(device, mesh=mesh8, in_specs=P("data"), out_specs=P("data"))
    with pytest.raises(DivergenceError):
        simulated(run, normal(8))


def test_a_result_of_which_devices_hold_different_copies_is_an_error(mesh8):
    run = jax.shard_map(lambda x: x * 2, mesh=mesh8, in_specs=P("data"), out_specs=P(), check_vma=False)
    with pytest.raises(AssertionError, match="devices disagree"):
        simulated(run, normal(8))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copies_that_are_no_numbers_are_equal(mesh8, dtype):
    run = jax.shard_map(lambda x: x - x, mesh=mesh8, in_specs=P("data"), out_specs=P(), check_vma=False)
    assert np.isnan(simulated(run, jnp.full(8, jnp.inf, dtype)).astype(np.float32)).all()
