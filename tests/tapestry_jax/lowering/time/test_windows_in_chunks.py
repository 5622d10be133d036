"""Windows on a dimension in chunks: every turn reads its piece and what its window reads around it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.scheduling.schedule import Convert, Region
from tests.contract import assert_contract, assert_holds, assert_same, inside
from tests.tapestry_jax.draw import named, normal


def smooth(block):
    return (block[:-2] + 2 * block[1:-1] + block[2:]) / 4


def stencil(mode):
    return tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary=mode)


def test_windows_over_the_mesh_and_in_chunks_exchange_their_overlap(mesh8):
    # Thirteen rows on four devices in two chunks each: the last chunk is all padding.
    args = (normal(13, 3),)
    graph = tp.trace(lambda x: stencil("edge")(tp.Map(jnp.sin)(x)), *named("y x", *args))
    plan = tp.plan(graph, tp.mesh(list(mesh8.devices[:4]), data=4), {"y": ("data", tp.chunks(2))})
    assert_holds(plan, args, reference=lambda x: smooth(np.pad(np.sin(x), ((1, 1), (0, 0)), mode="edge")))
    # Nothing is gathered, and what is exchanged is exchanged once, before the loop.
    assert {(each.kind, each.times) for each in inside(plan)} == {("collective-permute", 1)}
    last = [step for step in plan.schedule.steps if isinstance(step, Region)][-1]
    (taken,) = [step for step in last.body.steps if isinstance(step, Convert)]
    assert [change.cut.extent for change in taken.changes if isinstance(change, Slice)] == [2 + 2]


@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=pytest.mark.thorough) for m in ("zero", "reflect")] + ["periodic"]
)
def test_boundaries_are_answered_in_the_first_and_last_chunk(mode, mesh8):
    args = (normal(7, 3),)
    plan = tp.plan(tp.trace(stencil(mode), *named("y x", *args)), mesh8, {"y": tp.chunks(3)})
    assert "extend y" in plan.explain()
    assert_contract(plan)
    assert_same(plan, args)


@pytest.mark.thorough
@pytest.mark.parametrize("entry", [tp.chunks(3), ("data", tp.chunks(2))])
def test_a_strided_convolution_in_chunks(entry, mesh2x4):
    def convolve(image, filters):
        return jax.lax.conv_general_dilated(image, filters, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    args = (normal(2, 17, 13, 3), normal(3, 3, 3, 5, seed=1))
    conv = tp.Reduce(convolve, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)
    plan = tp.plan(tp.trace(conv, *named("b y x c, dy dx c o", *args)), mesh2x4, {"y": entry, "c": "model"})
    assert_contract(plan)
    assert_same(plan, args, rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
def test_a_repetition_inside_the_loop_reads_windows_of_what_does_not_change(mesh8):
    # Each turn adds the smoothed rows of `w` to its own chunk.
    @tp.program("y x, v x -> y x")
    def step(carry, w):
        return tp.Map(jnp.tanh)(carry + stencil("edge")(w).rename(v="y"))

    args = (normal(8, 3), normal(8, 3, seed=1))
    graph = tp.trace(lambda x, w: tp.iterate(step, 2)(x, w), *named("y x, v x", *args))
    plan = tp.plan(graph, mesh8, {"y": tp.chunks(2)})
    assert_contract(plan)
    assert_same(plan, args)
