"""Stencils under plans: halos, deep halos and uneven sizes, against what they are unplanned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same

RNG = np.random.default_rng(0)
# Modes of maps are held by their own contracts, and `y` is periodic; what stencils answer themselves is in every run.
BOUNDARIES: list[Any] = [2.5, ("one-sided", "zero")]
BOUNDARIES += [
    pytest.param(b, marks=pytest.mark.thorough) for b in ("periodic", "zero", "edge", "reflect", ("reflect", 1.0))
]


def spread(u: Any, c: Any) -> Any:
    """A step of diffusion whose neighbours differ."""
    return u.here + 0.1 * c.here * (2 * u[-1, 0] + u[1, 0] + u[0, -1] + u[1, 1] - 5 * u.here)


def program(boundary: Any, steps: int) -> Any:
    step = tp.stencil(spread, {"x": (-1, 1), "y": (-1, 1)}, boundary={"x": boundary, "y": "periodic"})

    @tp.program("x y, x y -> x y")
    def run(u: Any, c: Any) -> Any:
        return tp.iterate(step, steps)(u, c)

    return run


def args(x: int, y: int) -> tuple[Any, Any]:
    return tuple(RNG.normal(size=(2, x, y)).astype(np.float32))


def holds(plan: tp.Plan, given: Any, *, compiled: bool = False) -> None:
    plan.verify()
    shards = plan.shards()
    shards.verify(plan.graph)
    shards.verify_lowered(plan.compile().jaxpr())
    np.testing.assert_allclose(shards.run(*given), plan.graph(*given), rtol=1e-4, atol=1e-5)
    assert_same(plan, given)
    if compiled:
        assert_contract(plan, bounded=True)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_stencil_planned_exchanges_what_it_reads(boundary: Any) -> None:
    given = args(7, 6)
    graph = tp.trace(program(boundary, 2), *given)
    plan = tp.plan(graph, tp.mesh(row=2, column=2), {"x": "row", "y": "column"})
    holds(plan, given, compiled=boundary == ("one-sided", "zero"))
    # Of the constant no neighbour is read, and of x one cell on either side.
    assert all(each.path != "c" for each in plan.collectives())


@pytest.mark.parametrize("boundary", [pytest.param(BOUNDARIES[0], marks=pytest.mark.thorough), *BOUNDARIES[1:]])
def test_stencil_takes_deep_halos(boundary: Any) -> None:
    given = args(12, 4)
    graph = tp.trace(program(boundary, 4), *given)
    plan = tp.plan(graph, tp.mesh(row=3), {"x": ("row", tp.halo(depth=2))})
    holds(plan, given)
    shallow = tp.plan(graph, tp.mesh(row=3), {"x": "row"})

    def sent(plan: tp.Plan) -> int:
        return sum(each.times for each in plan.collectives() if each.kind == "collective-permute")

    assert 0 < sent(plan) < sent(shallow)


def test_stencil_of_a_system_in_chunks_and_uneven() -> None:
    def react(u: Any, v: Any, rate: Any) -> Any:
        uvv = u.here * v.here * v.here
        return u.here + rate * (u[-1] - 2 * u[0] + u[1]) - uvv, v.here + rate * v[2] + uvv

    step = tp.stencil(react, {"x": (-1, 2)}, boundary="edge")

    @tp.program("b x, b x,  -> b x, b x")
    def run(u: Any, v: Any, rate: Any) -> Any:
        return tp.iterate(step, 3)(u, v, rate)

    given = (*(0.1 * each for each in args(3, 11)), np.float32(0.1))
    plan = tp.plan(tp.trace(run, *given), tp.mesh(row=2, column=4), {"x": "column", "b": tp.chunks(2)})
    plan.verify()
    assert_same(plan, given)
