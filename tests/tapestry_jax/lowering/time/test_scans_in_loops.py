"""Scans in loops in time: over the mesh as well, around and inside loops over other dimensions, one behind another."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region
from tests.contract import assert_contract, assert_holds, assert_same, inside
from tests.tapestry_jax.draw import normal
from tests.thoroughly import thoroughly


def pair(a, b):
    return a, b


def second(state):
    return state[1]


@tp.program("t c, t c -> t c")
def recurrence(a, b):
    return tp.Scan(tp.monoids.AffineRecurrence, "t c, t c -> t c", over="t", kernel=pair, present=second)(a, b)


def sequential(a, b):
    h, states = np.zeros_like(b[0]), []
    for left, added in zip(a, b, strict=True):
        h = left * h + added
        states.append(h)
    return np.stack(states)


@tp.program("t c, t c -> t c")
def chain(a, b):
    total = tp.Scan(tp.monoids.Sum, "t c -> t c", over="t")(tp.Map(jnp.sin)(b))
    return recurrence(tp.Map(jnp.tanh)(a), tp.Map(jnp.cos)(total)) + total


def test_a_scan_over_the_mesh_and_in_chunks_holds(mesh2x4):
    # Nineteen steps in six chunks of four: the last device has three real ones, then nothing.
    args = (normal(19, 6), normal(19, 6, seed=1))
    plan = tp.plan(tp.trace(recurrence, *args), mesh2x4, {"t": ("data", tp.chunks(3)), "c": ("model", tp.chunks(2))})
    assert_holds(plan, args, reference=sequential)
    # As without chunks: the totals of one device, sent once.
    assert {each.kind for each in inside(plan)} == {"collective-permute"}
    assert all(each.times == 1 for each in inside(plan))
    # Nineteen steps are brought into the pieces of eight devices first, and the results back.
    kinds = [type(step) for step in plan.schedule.steps if not isinstance(step, Convert)]
    assert kinds == [Region, Finish, Region]
    assert "3 turns, for the totals alone" in plan.explain()


def test_a_scan_of_a_scan_takes_a_pass_for_each(mesh8):
    args = (normal(16, 2), normal(16, 2, seed=1))
    plan = tp.plan(tp.trace(chain, *args), mesh8, {"t": ("data", tp.chunks(2))})
    first, exchange, middle, other, last = plan.schedule.steps
    assert [step.ends for step in (first, middle, last)] == [True, True, False]
    assert isinstance(exchange, Finish) and isinstance(other, Finish)
    assert len(first.body.steps) < len(middle.body.steps) < len(last.body.steps)
    assert_same(plan, args, grad=False)


@pytest.mark.thorough
def test_a_scan_of_a_scan_holds(mesh8):
    args = (normal(19, 2), normal(19, 2, seed=1))
    assert_holds(tp.plan(tp.trace(chain, *args), mesh8, {"t": ("data", tp.chunks(2))}), args)


@pytest.mark.parametrize("entries", [{"t": tp.chunks(2), "c": tp.chunks(3)}, {"c": tp.chunks(3), "t": tp.chunks(2)}])
def test_loops_around_and_inside_the_loop_of_a_scan(entries, mesh8):
    args = (normal(8, 6),)
    program = tp.program("t c -> t c")(lambda x: tp.Scan(tp.monoids.Sum, "t c -> t c", over="t")(x))
    plan = tp.plan(tp.trace(program, *args), mesh8, entries)
    assert_contract(plan)
    assert_same(plan, args, reference=lambda x: np.cumsum(x, 0))


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"reverse": True}, {"exclusive": True}, {"reverse": True, "exclusive": True}])
def test_scans_in_every_direction(options, mesh8):
    args = (normal(19, 2),)
    program = tp.program("t c -> t c")(lambda x: tp.Scan(tp.monoids.Sum, "t c -> t c", over="t", **options)(x))
    plan = tp.plan(tp.trace(program, *args), mesh8, {"t": ("data", tp.chunks(2))})
    assert_contract(plan)
    assert_same(plan, args)


@pytest.mark.parametrize("final", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_two_scans_around_a_loop_over_another_dimension_know_what_is_found_when(final, mesh2x4):
    # The first pass may ask the loop inside for nothing that needs the total of the second scan.
    running = tp.Scan(tp.monoids.Max, "t c -> t c", over="t", final=final)

    @tp.program("t c -> t c, t c" + (", c" if final else ""))
    def two(x):
        first, *last = running(x) if final else (running(x),)
        return first, tp.Scan(tp.monoids.Sum, "t c -> t c", over="t")(x + first), *last

    args = (normal(7, 3),)
    plan = tp.plan(tp.trace(two, *args), mesh2x4, {"t": ("data", tp.chunks(2)), "c": tp.chunks(3)})
    plan.verify()
    # What the gradient of a scan in two loops sends is held above.
    assert_contract(plan, thoroughly())
    assert_same(plan, args)
