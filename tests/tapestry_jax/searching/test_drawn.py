"""Plans that are found for programs and constraints that were drawn: what was fixed stays, and no value changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from jax.sharding import Mesh

import tapestry_jax as tp
from combinators.errors import TapestryError
from tapestry_jax.machines.figures import Figure
from tests.pairs.pair import compare
from tests.pairs.programs import Program, draw_program

QUICK, SLOW = Figure(1e-15, "invented"), Figure(1.0, "invented")
H100 = tp.machines.H100
"""On a machine that starts everything at once, and takes a second for each operation, to cut a dozen cells pays."""
MACHINE = replace(
    H100,
    start=QUICK,
    vector=SLOW,
    matmul=tuple((name, SLOW) for name, _ in H100.matmul),
    inside=replace(H100.inside, latency=QUICK),
    between=replace(H100.between, latency=QUICK),
)
FIXED: tuple[Any, ...] = (None, "data", "model", tp.chunks(2), tp.ring("data"), ("data", tp.chunks(2)))


def drawn(seed: int, mesh: Mesh) -> tuple[Program, tp.Plan, dict[str, Any]] | None:
    """A program, a plan by hand, and what else to ask; None where the draw is refused."""
    rng = Random(f"fixed {seed}")
    program = draw_program(f"found {seed}", dtype="float32")
    named = sorted({name for kind in program.types.values() for name in kind.names if name})
    fixed = {name: rng.choice(FIXED) for name in named if rng.random() < 0.4}
    try:
        by_hand = tp.plan(program.graph, mesh, fixed)
        needed = by_hand.memory(grad=True).total
    except TapestryError:
        return None
    options: dict[str, Any] = {"entries": fixed, "grad": True, "seed": seed, "method": rng.choice(("anneal", "auto"))}
    if rng.random() < 0.5:
        options["memory"] = int(needed * rng.choice((0.5, 0.8, 1.0))) or 1
    return program, by_hand, options


def faults(seed: int, mesh: Mesh) -> Iterator[str]:
    """What is wrong with what a search finds."""
    found = drawn(seed, mesh)
    if found is None:
        return
    program, by_hand, options = found
    limit = options.get("memory", float("inf"))
    fits = by_hand.memory(grad=True).total <= limit
    try:
        plan = tp.search(program.graph, mesh, MACHINE, **options)
    except tp.PlanError as error:
        told = ("B a device", "the least that was found needs ", "at the peak ", "Give memory=")
        if fits or not all(text in str(error) for text in told):
            yield f"nothing found: {error}"
        return
    said = dict(plan.entries)
    yield from (f"`{name}` is not as it was fixed" for name, items in by_hand.entries if said.get(name) != items)
    if plan.memory(grad=True).total > limit:
        yield "does not fit"
    if fits and plan.cost(MACHINE, True).seconds > by_hand.cost(MACHINE, True).seconds * (1 + 1e-9):
        yield "dearer than by hand"
    if tp.search(program.graph, mesh, MACHINE, **options).to_json() != plan.to_json():
        yield "another plan of the same seed"
    plan.verify()
    if str(plan.diff(plan)) == str(plan.diff(by_hand)) and plan.schedule != by_hand.schedule:
        yield "no difference told"
    differs = compare(program, plan)
    if differs is not None:
        yield f"{differs[0]}: {differs[1]}"


def test_what_is_found_keeps_what_is_fixed_and_gives_the_same(mesh2x4: Mesh):
    assert drawn(1, mesh2x4) is not None
    assert list(faults(1, mesh2x4)) == []


@pytest.mark.thorough
def test_what_is_found_for_a_hundred_draws_gives_the_same(mesh2x4: Mesh):
    assert [(seed, fault) for seed in range(1, 101) for fault in faults(seed, mesh2x4)] == []
