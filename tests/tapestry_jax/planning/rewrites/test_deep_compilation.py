"""What XLA compiles of a deep halo grows with its depth, and no faster, where several fields go from turn to turn."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.rewrites.deepen import FUSED_TURNS, is_barrier
from tests.tapestry_jax.draw import normal


def laplacian(block):
    return block[:-2] + block[2:] - 2 * block[1:-1]


SECOND = tp.Map(laplacian, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="periodic")


def react(u, v):
    rate = u * v * v
    return u + 0.2 * SECOND(u) - rate, v + 0.1 * SECOND(v) + rate


def coupled(depth, mesh, platforms=None, height=256):
    program = tp.program("y x, y x -> y x, y x")(lambda u, v: tp.iterate(react, 2 * depth)(u, v))
    field = tp.TensorType({"y": height, "x": 4})
    return tp.plan(tp.trace(program, field, field), mesh, {"y": ("data", tp.halo(depth=depth))}, platforms=platforms)


def lines(depth, mesh, platforms=None):
    return coupled(depth, mesh, platforms).compile().lower().compile().as_text().count("\n")


def test_compiled_program_of_two_coupled_fields_grows_with_the_depth_alone(mesh8):
    shallow, deep, deeper = (lines(depth, mesh8) for depth in (4, 8, 12))
    # Four turns more add the same again; without barriers that hold on CPUs, twice as much.
    assert deeper - deep < 1.1 * (deep - shallow)


def test_barriers_that_hold_on_cpus_stand_after_some_turns_of_coupled_fields_alone(mesh8):
    def firm(plan):
        [loop] = [node for node in plan.schedule.graph.nodes if hasattr(node, "body")]
        return [bool(node.operation.dense) for node in loop.body.nodes if is_barrier(node)]

    # Of two fields in each of the gaps between the turns.
    gaps = [number % FUSED_TURNS == 0 for number in range(1, 12) for _ in range(2)]
    assert firm(coupled(12, mesh8)) == gaps
    # Compilers for TPUs and GPUs keep the ordinary ones.
    assert not any(firm(coupled(12, mesh8, ("cuda", "tpu"))))
    alone = tp.program("y x -> y x")(lambda u: tp.iterate(SECOND, 24)(u))
    graph = tp.trace(alone, tp.TensorType({"y": 256, "x": 4}))
    assert not any(firm(tp.plan(graph, mesh8, {"y": ("data", tp.halo(depth=12))})))


# Steps of several operations are in test_deep_halos.py.
@pytest.mark.thorough
def test_coupled_fields_behind_barriers_have_their_values_and_gradients(mesh8):
    args = (0.1 * normal(64, 4), 0.1 * normal(64, 4, seed=1))
    plan = coupled(5, mesh8, ("cpu", "cuda"), height=64)

    def by_hand(u, v):
        def second(a):
            return np.roll(a, 1, 0) + np.roll(a, -1, 0) - 2 * a

        for _ in range(10):
            rate = u * v * v
            u, v = u + 0.2 * second(u) - rate, v + 0.1 * second(v) + rate
        return u, v

    run = plan.compile()
    for got, expected in zip(run(*args), by_hand(*map(np.asarray, args)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

    def loss(function):
        return jax.jit(jax.grad(lambda u, v: sum((each * each).sum() for each in function(u, v)), argnums=(0, 1)))

    for got, expected in zip(loss(run)(*args), loss(plan.graph)(*args), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
