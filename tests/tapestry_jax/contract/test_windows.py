"""The contract on maps and folds that read windows: convolutions, strides, boundaries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

import tapestry_jax as tp
from tapestry_jax.planning.geometry import drift
from tests.boundaries import PADS
from tests.contract import assert_contract, assert_holds, assert_same, inside
from tests.tapestry_jax.draw import named, normal

LAYOUT = ("NHWC", "HWIO", "NHWC")


def strided(image, filters):
    return jax.lax.conv_general_dilated(image, filters, (2, 2), "VALID", dimension_numbers=LAYOUT)


def dense(image, filters):
    return jax.lax.conv_general_dilated(image, filters, (1, 1), "VALID", dimension_numbers=LAYOUT)


@pytest.mark.parametrize(
    ("height", "entries"),
    [
        pytest.param(12, {"b": "data", "o": "model"}, marks=pytest.mark.thorough),
        pytest.param(12, {"y": "data", "x": "model"}, marks=pytest.mark.thorough),
        (17, {"y": "model", "c": "data"}),
        pytest.param(9, {"c": ("data", "model")}, marks=pytest.mark.thorough),
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


def test_contract_corners_under_every_boundary(mesh2x4):
    # Stencils whose corners come from diagonal neighbours, on uneven blocks of both dimensions.
    def corners(block):
        return block[:-2, :-2] + 2 * block[2:, :-2] - block[:-2, 2:] - 3 * block[2:, 2:]

    modes = [("periodic", "reflect"), ("edge", "zero")]
    window = "(y+[dy]-1) (x+[dx]-1) -> y x"
    stencils = [tp.Map(corners, window, sizes={"dy": 3, "dx": 3}, boundary=mode) for mode in modes]
    args = (normal(9, 7),)

    @tp.program("y x -> y x")
    def network(field):
        return stencils[0](field) * stencils[1](field)

    def reference(field):
        padded = [np.asarray(field)] * 2
        for axis in range(2):
            width = [(1, 1) if other == axis else (0, 0) for other in range(2)]
            padded = [np.pad(each, width, mode=PADS[mode[axis]]) for each, mode in zip(padded, modes, strict=True)]
        return corners(padded[0]) * corners(padded[1])

    plan = tp.plan(tp.trace(network, *args), mesh2x4, {"y": "model", "x": "data"})
    assert_holds(plan, args, reference=reference)
    assert {each.kind for each in inside(plan, True)} == {"collective-permute"}


@pytest.mark.parametrize("axes", [pytest.param(("model", "data"), marks=pytest.mark.thorough), ("data",)], ids=str)
def test_contract_strided_and_dilated_windows_of_several_hops(mesh2x4, axes):
    # A window of 13 cells over blocks of 3: up to four neighbours away, around the ends, in the listed order of axes.
    def smooth(block):
        reads = range(0, 13, 3)
        return sum((k + 1) * block[i : i + block.shape[0] - 12 : 2] for k, i in enumerate(reads))

    def forward(block):
        return block[:-5] - block[5:]

    ring = tp.Map(smooth, "(2*t+3*[d]-5) -> t", sizes={"d": 5}, boundary="periodic")
    ahead = tp.Map(forward, "(t+5*[d]+1) -> t", sizes={"d": 2}, boundary="valid")
    args = (normal(33),)
    graph = tp.trace(tp.program("t -> t")(lambda x: ahead(ring(x))), *args)

    def reference(x):
        x = np.asarray(x)
        at = 2 * np.arange(17)[:, None] + 3 * np.arange(5)[None, :] - 5
        rows = (x[at % 33] * np.arange(1, 6)).sum(1)
        return rows[1:12] - rows[6:17]

    plan = tp.plan(graph, mesh2x4, {"t": axes})
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
    # The second reads windows of what the first leaves cut: neighbours exchange rows between them.
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
    assert {each.kind for each in inside(plan)} == {"collective-permute"}


@pytest.mark.parametrize(("rows", "reach", "axes"), [(1, 2, ("data", "model")), (3, 9, ("model",))], ids=str)
def test_contract_windows_that_keep_fewer_cells_than_they_read(mesh2x4, rows, reach, axes):
    # Blocks of two sizes, and holders that are further away from device to device.
    devices = int(np.prod([mesh2x4.shape[axis] for axis in axes]))
    args = (normal(3, rows * devices + reach),)
    window = tp.Map(lambda x: 2 * x[..., :-reach] + x[..., reach:], "b (y+[dy]) -> b y", sizes={"dy": reach + 1})
    plan = tp.plan(tp.trace(window, *named("b y", *args)), mesh2x4, {"y": axes})
    assert any(each.alike > 1 for each in plan.collectives())
    assert_holds(plan, args, reference=lambda x: 2 * np.asarray(x)[:, :-reach] + np.asarray(x)[:, reach:])


# What a boundary does at the ends is asked of all four above, on corners.
@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("zero", 17),
        pytest.param("periodic", 23, marks=pytest.mark.thorough),
        pytest.param("reflect", 17, marks=pytest.mark.thorough),
        pytest.param("edge", 23, marks=pytest.mark.thorough),
    ],
)
def test_contract_strides_over_blocks_of_another_size(mesh2x4, mode, size):
    # What the sine leaves in blocks of 3 is read in blocks of 4.
    window = tp.Map(lambda x: 2 * x[:-3:2] + x[3::2], "(2*y+[dy]-1) c -> y c", sizes={"dy": 4}, boundary=mode)
    args = (normal(size, 3),)

    def reference(x):
        padded, end = np.pad(np.sin(np.asarray(x)), [(1, 5), (0, 0)], mode=PADS[mode]), size + size % 2
        return 2 * padded[0:end:2] + padded[3 : 3 + end : 2]

    program = tp.trace(lambda x: window(tp.Map(jnp.sin)(x)), *named("y c", *args))
    assert_holds(tp.plan(program, mesh2x4, {"y": ("data", "model")}), args, reference=reference)


def test_contract_two_windows_of_one_value_over_blocks_of_another_size(mesh2x4):
    # Some permutations of the two may be the same: XLA sends these once, and the prediction is a bound.
    args = (normal(10, 2),)
    first, second = (
        tp.Map(lambda x, n=width - 1: x[:-n] + x[n:], "(y+[dy]) c -> y c", sizes={"dy": width}) for width in (3, 2)
    )
    program = tp.trace(lambda x: (first(x), second(x)), *named("y c", *args))
    plan = tp.plan(program, mesh2x4, {"y": ("data", "model")})
    assert any(each.bound for each in plan.collectives())
    plan.verify()
    assert_contract(plan, bounded=True)
    assert_same(plan, args)


@pytest.mark.parametrize(
    ("mode", "size", "width", "axes"),
    [
        pytest.param("zero", 16, 13, ("data", "model"), marks=pytest.mark.thorough),
        ("zero", 17, 29, ("data",)),
        pytest.param("zero", 15, 2, ("model",), marks=pytest.mark.thorough),
        ("valid", 24, 9, ("model", "data")),
    ],
)
def test_contract_windows_over_equal_blocks_without_tables(mesh2x4, monkeypatch, mode, size, width, axes):
    monkeypatch.setattr(drift, "_MOST_ENTRIES", -1)
    weights = tuple(range(1, width + 1))
    window = tp.Map(
        lambda x: sum(w * x[at : at + len(x) - width + 1] for at, w in enumerate(weights)),
        "(y+[dy]) -> y" if mode == "valid" else "(y+[dy]-1) -> y",
        sizes={"dy": width},
        boundary=mode,
    )
    args = (normal(size),)

    def reference(x):
        padded = np.pad(np.asarray(x), (0, 0) if mode == "valid" else (1, width - 2))
        return np.correlate(padded, weights, "valid")

    assert_holds(tp.plan(tp.trace(window, *args), mesh2x4, {"y": axes}), args, rtol=1e-4, reference=reference)
