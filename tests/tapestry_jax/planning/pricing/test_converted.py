"""What TPUs convert before loops, worked out by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp

linear = tp.einsum("b k, k n -> b n")
MESH = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def multiplied(x, up, down):
    return tp.stack(lambda x, u, d: x + linear(tp.Map(jax.nn.gelu)(linear(x, u)), d), up.shape[0])(x, up, down)


@tp.program("batch embed, layer embed, layer embed -> batch embed")
def scaled(x, scale, shift):
    return tp.stack(lambda x, s, t: x * s + t, scale.shape[0])(x, scale, shift)


def loop_seconds(program: Any, machine: str, *shapes: tuple[int, ...], dtype: Any = jnp.float32) -> float:
    graph = tp.trace(program, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    cost = tp.plan(graph, MESH, {"batch": "data"}).cost(machine)
    return sum(each.seconds for each in cost.operations if each.path == "stack")


DEEP = (4096, 512), (8, 512, 2048), (8, 2048, 512)


def test_stacks_that_products_read_are_converted_once():
    stacks = 2 * 8 * 512 * 2048 * 4
    assert loop_seconds(multiplied, "v5e", *DEEP) == pytest.approx(3.3 * stacks / (0.81 * 819e9))


@pytest.mark.parametrize(
    ("program", "machine", "shapes", "dtype"),
    [
        (multiplied, "h100", DEEP, jnp.float32),
        (multiplied, "v5e", DEEP, jnp.bfloat16),
        (scaled, "v5e", ((4096, 512), (8, 512), (8, 512)), jnp.float32),
    ],
)
def test_nothing_is_converted(program: Any, machine: str, shapes: Any, dtype: Any):
    assert loop_seconds(program, machine, *shapes, dtype=dtype) == 0
