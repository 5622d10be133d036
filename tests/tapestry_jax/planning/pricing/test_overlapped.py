"""Which transfers of layers pass behind computing: schedules and transfers made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax import machines
from tapestry_jax.planning.pricing.cost import TransferCost
from tapestry_jax.planning.pricing.overlapped import overlapped, share_behind
from tapestry_jax.planning.pricing.sums import Room, Sums
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule

H100 = machines.H100
MESH = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
linear = tp.einsum("b k, k n -> b n")


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def deep(x, up, down):
    return tp.stack(lambda x, u, d: x + linear(linear(x, u), d), 4)(x, up, down)


def schedule_of(program: Any, entries: Any, *shapes: tuple[int, ...]) -> Schedule:
    graph = tp.trace(program, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    return tp.plan(graph, MESH, entries).schedule


LAYERS = schedule_of(deep, {"batch": "data"}, (64, 16), (4, 16, 32), (4, 32, 16))


def hidden(schedule: Schedule, place: tuple[int, ...], kind: str, *, backward: bool = False, seconds: float = 1.0):
    sums = Sums(H100)
    sums.layers[place[:1]] = Room(forward=10.0, backward=10.0)
    sent = TransferCost("stack", kind, ("data",), 8, 4, backward, seconds)
    (found,) = overlapped(schedule, [(place, sent)], sums)
    return found.hidden


def reading(*slots: int) -> tuple[Schedule, tuple[int, ...]]:
    """The layers, one of whose operations reads these slots of the body."""
    (at,) = (number for number, step in enumerate(LAYERS.steps) if isinstance(step, Repeat))
    loop: Any = LAYERS.steps[at]
    inside = next(number for number, step in enumerate(loop.body.steps) if isinstance(step, Run))
    steps = [*loop.body.steps]
    steps[inside] = replace(steps[inside], operands=slots)
    body = replace(loop.body, steps=tuple(steps))
    outer = [*LAYERS.steps]
    outer[at] = replace(loop, body=body)
    return replace(LAYERS, steps=tuple(outer)), (at, inside)


def body() -> Schedule:
    return next(step.body for step in LAYERS.steps if isinstance(step, Repeat))


def test_what_a_layer_gathers_of_its_own_parameters_passes_behind_others():
    schedule, place = reading(body().inputs[0], body().inputs[1])
    assert hidden(schedule, place, "all-gather") == pytest.approx(0.94)
    # No longer than layers compute.
    assert hidden(schedule, place, "all-gather", seconds=20.0) == pytest.approx(10.0)


@pytest.mark.parametrize("slot", ["carried", "inside"])
def test_what_it_gathers_of_anything_else_waits(slot: str):
    schedule, place = reading(body().inputs[0] if slot == "carried" else len(body().slots) - 1)
    assert hidden(schedule, place, "all-gather") == 0


def test_gathers_in_chunks_wait():
    schedule = schedule_of(linear, {"b": ("data", tp.chunks(4))}, (64, 16), (16, 32))
    (at,) = (number for number, step in enumerate(schedule.steps) if isinstance(step, Region))
    region: Any = schedule.steps[at]
    inside = next(number for number, step in enumerate(region.body.steps) if isinstance(step, Run))
    assert hidden(schedule, (at, inside), "all-gather") == 0


@pytest.mark.parametrize(
    ("kind", "backward", "share"),
    [
        ("all-gather", False, 0.94),
        ("all-gather", True, 0.94),
        ("reduce-scatter", True, 0.88),
        ("reduce-scatter", False, 0.0),
        ("all-reduce", True, 0.0),
    ],
)
def test_only_gathers_and_the_sums_of_gradients_pass_behind(kind: str, backward: bool, share: float):
    more = replace(H100, hides=(*H100.hides, ("all-reduce", machines.Figure(0.5, "for tests"))))
    assert share_behind(more, kind, backward=backward) == share
