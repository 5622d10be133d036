"""Sums of gradients that are sent as one: priced with the latency of one, by the price of one collective of all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.machines.laid import lay
from tapestry_jax.machines.transfer import latency, seconds
from tapestry_jax.planning.pricing import combined as combining
from tapestry_jax.planning.pricing.cost import TransferCost

MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
MACHINES = ["h100:1x8", "v5e:2x4"]
linear = tp.einsum("b k, k n -> b n")


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def two(x, up, down):
    return linear(linear(x, up), down)


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def deep(x, up, down):
    return tp.stack(lambda x, u, d: x + linear(linear(x, u), d), 4)(x, up, down)


TWO, DEEP = ((64, 16), (16, 32), (32, 16)), ((64, 16), (4, 16, 32), (4, 32, 16))


def sums(program: Any, shapes: Any, entries: Any, machine: str, grad: Any = True) -> list[TransferCost]:
    graph = tp.trace(program, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    cost = tp.plan(graph, MESH, entries).cost(machine, grad=grad)
    return [each for each in cost.transfers if each.kind == "all-reduce" and each.backward]


def laid(machine: str) -> Any:
    plan = tp.plan(tp.trace(two, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in TWO)), MESH, {})
    return lay(tp.machines.find(machine), plan.schedule.mesh.axes)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("program", "shapes"), [(two, TWO), (deep, DEEP)])
def test_sums_over_the_same_axes_take_what_one_of_all_bytes_does(program: Any, shapes: Any, machine: str):
    found = sums(program, shapes, {"batch": ("data", "model")}, machine)
    assert len(found) == 2 and {each.axes for each in found} == {("data", "model")}
    whole = sum(each.bytes for each in found)
    expected = seconds(laid(machine), "all-reduce", ("data", "model"), whole)
    assert sum(each.seconds for each in found) == pytest.approx(expected, rel=1e-12)


def test_sums_over_other_axes_have_a_latency_of_their_own():
    found = sums(two, TWO, {"batch": "data", "mlp": "model"}, "h100:1x8", (1, 2))
    where = laid("h100:1x8")
    assert Counter(each.axes for each in found) == {("data",): 2}
    more = sums(two, TWO, {"batch": "data", "mlp": "model"}, "h100:1x8", True)
    (rows,) = (each for each in more if each.axes == ("model",))
    assert rows.seconds == seconds(where, "all-reduce", ("model",), rows.bytes)


def test_what_is_not_the_gradient_of_an_argument_waits_for_its_own():
    @tp.program("batch embed, embed mlp, mlp out -> batch out")
    def waiting(x, up, down):
        return linear(tp.Map(jnp.tanh)(linear(tp.Map(jnp.sin)(x), up)), down)

    # The gradient of the sine is summed, and goes on to the rows.
    found = sums(waiting, TWO, {"mlp": "model"}, "h100:1x8", (0, 1, 2))
    where = laid("h100:1x8")
    assert [each.axes for each in found] == [("model",)]
    assert found[0].seconds == seconds(where, "all-reduce", ("model",), found[0].bytes)


def test_large_sums_are_sent_by_themselves(monkeypatch: pytest.MonkeyPatch):
    entries = {"batch": ("data", "model")}
    small = sum(each.seconds for each in sums(two, TWO, entries, "h100:1x8"))
    monkeypatch.setattr(combining, "LARGEST", 16 * 32 * 4)
    large = sum(each.seconds for each in sums(two, TWO, entries, "h100:1x8"))
    assert large - small == pytest.approx(latency(laid("h100:1x8"), "all-reduce", ("data", "model")))
