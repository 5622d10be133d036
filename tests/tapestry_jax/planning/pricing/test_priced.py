"""Bytes that operations move, worked out by hand: on machines whose memory moves a byte a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax import machines

ONE, NONE = machines.Figure(1.0, "for tests"), machines.Figure(1e-30, "for tests")
SLOW = {name: replace(machines.KNOWN[name], bandwidth=ONE, reached=None, start=NONE) for name in ("H100", "v5e")}
MESH = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
linear = tp.einsum("b k, k n -> b n")
# Float32: x of 64 x 32, w of 32 x 16, what they give of 64 x 16.
X, W, Y = 64 * 32 * 4, 32 * 16 * 4, 64 * 16 * 4


@tp.program("batch embed, embed out -> batch out")
def layer(x, w):
    return tp.Map(jnp.tanh)(linear(x, w))


@tp.program("batch embed, layer embed out -> batch embed")
def layers(x, w):
    return tp.stack(lambda x, w: tp.Map(jnp.tanh)(linear(x, w)).rename(out="embed"), 4)(x, w)


def costs(program: Any, machine: str, entries: Any, *shapes: tuple[int, ...], grad: bool = False) -> dict[str, Any]:
    graph = tp.trace(program, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    cost = tp.plan(graph, MESH, entries).cost(SLOW[machine], grad=grad)
    return {each.path.rpartition("/")[2]: each for each in cost.operations}


def forward(found: dict[str, Any]) -> list[float]:
    return [found[name].forward for name in ("einsum", "tanh")]


def test_what_a_product_makes_for_one_reader_stays_in_its_kernel():
    found = costs(layer, "H100", {}, (64, 32), (32, 16))
    assert forward(found) == pytest.approx([X + W, Y])


def test_what_devices_merge_is_written_before_it_is_read():
    found = costs(layer, "H100", {"embed": "data"}, (64, 32), (32, 16))
    assert forward(found) == pytest.approx([(X + W) / 8 + Y, 2 * Y])


def test_what_gradients_read_is_written_though_it_is_fused():
    found = costs(layer, "H100", {}, (64, 32), (32, 16), grad=True)
    assert forward(found) == pytest.approx([X + W + Y, Y])


def test_on_tpus_what_gradients_read_stays_on_the_chip():
    found = costs(layer, "v5e", {}, (64, 32), (32, 16), grad=True)
    assert forward(found) == pytest.approx([X + W + Y / 2, Y])
    # By each operand: the cotangent, the other operand, and the gradient; at twice the rate of memory.
    assert found["einsum"].backward == pytest.approx((2 * Y + 2 * W + 2 * X) / 2)
    assert costs(layer, "H100", {}, (64, 32), (32, 16), grad=True)["einsum"].backward == 2 * (Y + W + X)


def test_on_tpus_layers_write_what_gradients_read_to_stacks():
    square = 32 * 32 * 4
    found = costs(layers, "v5e", {}, (64, 32), (4, 32, 32), grad=True)
    assert forward(found) == pytest.approx([4 * (X + square + X), 4 * X])
    assert found["einsum"].backward == pytest.approx(4 * 2 * (X + square + X))
