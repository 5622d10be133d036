"""The contract on maps and folds that read windows: convolutions, strides, boundaries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage, signal

import tapestry_jax as tp
from tests.contract import assert_holds
from tests.tapestry_jax.draw import named, normal

LAYOUT = ("NHWC", "HWIO", "NHWC")


def strided(image, filters):
    return jax.lax.conv_general_dilated(image, filters, (2, 2), "VALID", dimension_numbers=LAYOUT)


def dense(image, filters):
    return jax.lax.conv_general_dilated(image, filters, (1, 1), "VALID", dimension_numbers=LAYOUT)


@pytest.mark.parametrize(
    ("height", "entries"),
    [
        (12, {"b": "data", "o": "model"}),
        (12, {"y": "data", "x": "model"}),
        (17, {"y": "model", "c": "data"}),
        (9, {"c": ("data", "model")}),
    ],
    ids=str,
)
def test_contract_strided_convolution(mesh2x4, height, entries):
    # NumPy windows and einsum as the reference, which knows no convolution.
    args = (normal(2, height, 13, 3), normal(3, 3, 3, 5, seed=1))
    conv = tp.Reduce(strided, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)

    def reference(image, filters):
        windows = np.lib.stride_tricks.sliding_window_view(np.asarray(image), (3, 3), axis=(1, 2))[:, ::2, ::2]
        return np.einsum("byxcij,ijco->byxo", windows, np.asarray(filters))

    plan = tp.plan(tp.trace(conv, *named("b y x c, dy dx c o", *args)), mesh2x4, entries)
    assert_holds(plan, args, rtol=1e-3, atol=1e-4, reference=reference)


BOUNDARIES = {"zero": "constant", "periodic": "grid-wrap", "reflect": "mirror", "edge": "nearest"}


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_contract_stencil_with_a_boundary(mesh2x4, boundary):
    def smooth(block):
        return (block[:-2] + block[2:] + 2 * block[1:-1]) / 4

    args = (normal(9, 6),)
    stencil = tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary=boundary)
    plan = tp.plan(tp.trace(stencil, *named("y x", *args)), mesh2x4, {"y": "model", "x": "data"})
    weights = np.asarray([1, 2, 1]) / 4

    def reference(x):
        return ndimage.correlate1d(np.asarray(x), weights, axis=0, mode=BOUNDARIES[boundary])

    assert_holds(plan, args, reference=reference)


def test_contract_window_over_two_dimensions_that_are_folded(mesh2x4):
    # One operand axis reads `y + dy`, and the filter's rows are a fold that may be cut itself.
    def correlate(x, w):
        return sum(w[i] * x[i : i + x.shape[0] - w.shape[0] + 1] for i in range(w.shape[0]))

    args = (normal(12), normal(5, seed=1))
    conv = tp.Reduce(correlate, "(y+dy), dy -> y", tp.monoids.Sum)
    graph = tp.trace(conv, *named("y, dy", *args))
    plan = tp.plan(graph, mesh2x4, {"y": "data", "dy": "model"})
    assert_holds(plan, args, reference=lambda x, w: np.correlate(x, w, "valid"))


def test_contract_two_convolutions(mesh8):
    # The second reads windows of what the first leaves cut: a gather between them.
    conv = tp.Reduce(dense, "b (y+[dy]) (x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)
    tanh = tp.Map(jnp.tanh)
    args = (normal(1, 10, 7, 2), normal(3, 3, 2, 4, seed=1, scale=0.3), normal(3, 1, 4, 2, seed=2, scale=0.3))

    @tp.program("b y x c, dy dx c o, ey ex o p -> b y x p")
    def network(image, f, g):
        return conv(tanh(conv(image, f)), g)

    def one(image, filters):
        image, filters = np.asarray(image), np.asarray(filters)
        channels = range(filters.shape[2])
        maps = [
            sum(signal.correlate(image[0, :, :, c], filters[:, :, c, o], "valid") for c in channels)
            for o in range(filters.shape[3])
        ]
        return np.stack(maps, -1)[None]

    plan = tp.plan(tp.trace(network, *args), mesh8, {"y": "data"})
    assert_holds(plan, args, rtol=1e-3, atol=1e-4, reference=lambda i, f, g: one(np.tanh(one(i, f)), g))
    assert [each.kind for each in plan.collectives()] == ["all-gather"]
