"""What an exchange of neighbours sends is told by ranges of devices: as the tables of all devices say, at any size."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.index_space.boundary import BOUNDARIES
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.fewer import fewer
from tapestry_jax.planning.geometry.halo import Hop, neighbour_exchange, permuted_axes
from tapestry_jax.planning.geometry.hops import axes_apart, sent_hops
from tapestry_jax.planning.geometry.layout import Cut, Window, widened_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

NAMES = ("a", "b", "c")


@st.composite
def exchanges(draw: Any) -> tuple[Overlap, MeshShape]:
    """Many devices, blocks small and large, full, partial and empty, halos deeper than a block, every boundary."""
    shape = draw(st.sampled_from([(1,), (7,), (64,), (97,), (4, 16), (3, 31), (2, 3, 11), (150,)]))
    axes, devices = NAMES[: len(shape)], math.prod(shape)
    mode, step = draw(st.sampled_from(BOUNDARIES)), draw(st.integers(1, 2))
    rows = draw(st.sampled_from([1, 2, 3, 100]))
    block = rows * step
    # As many empty devices as full ones is a case of its own: two ways round a periodic axis are as long.
    size = draw(st.sampled_from([0, 1, block * devices, block * (devices // 2 + 1)]) | st.integers(0, block * devices))
    size = max(0, min(size - draw(st.integers(0, 2)), block * devices))
    offset, width = draw(st.integers(-5, 5)), draw(st.integers(0, 7))
    offset = abs(offset) if mode == "valid" else offset
    count = max((size - offset - width) // step + 1, 0) if mode == "valid" else -(-size // step)
    had, before, after = (draw(st.integers(0, 3)) if step == 1 else 0 for _ in range(3))
    source = widened_cut(Cut(axes, block), size, had, after, wraps=mode == "periodic")
    wraps = mode == "periodic" and before + after > 0
    window = Window(offset, width, step, count, mode, before, after, wraps)
    return Overlap(0, source, Cut(axes, block, window), size), MeshShape(tuple(zip(axes, shape, strict=True)))


def _told(hop: Hop, axes: tuple[str, ...], mesh: MeshShape) -> Any:
    return hop.length, permuted_axes(hop.pairs, axes, mesh), len(hop.pairs)


@settings(max_examples=40)
@given(exchanges(), st.integers(-5, 5), st.integers(0, 2))
def test_what_is_sent_is_what_the_tables_of_all_devices_send(
    exchange: tuple[Overlap, MeshShape], moved: int, wider: int
) -> None:
    change, mesh = exchange
    window = change.cut.window
    assert window is not None
    offset = window.offset if window.mode == "valid" or wider else moved
    width = window.width + (wider if window.mode != "valid" else 0)
    check(change, replace(change, cut=replace(change.cut, window=replace(window, offset=offset, width=width))), mesh)


def check(change: Overlap, other: Overlap, mesh: MeshShape) -> None:
    """Both are predicted as their tables say, and what they send is alike where the tables are."""
    axes = change.cut.axes
    found: list[tuple[Any, Any]] = []
    for each in (change, other):
        assert each.source is not None
        real = neighbour_exchange(each.source, each.cut, each.size, mesh.size(axes)).hops
        sent = sent_hops(each, mesh)
        counts = [sum(stop - start for start, stop in hop.receivers) for hop in sent]
        told = [(hop.length, hop.axes(axes, mesh), count) for hop, count in zip(sent, counts, strict=True)]
        assert told == [_told(hop, axes, mesh) for hop in real]
        found += [(one.key, few.key) for one, few in zip(real, sent, strict=True)]
    # Two hops are one permutation to XLA exactly where they are one here.
    for (one, few), (two, less) in itertools.combinations(found, 2):
        assert (one == two) == (few == less)


@pytest.mark.parametrize("mode", ["periodic", "reflect"])
@pytest.mark.parametrize(
    ("rows", "full"), [(1, 75), (2, 76), (2, 60), (1, 90), (100, 77), (100, 150), (2, 110), (2, 40)]
)
def test_ends_meet_round_both_ways(mode: str, rows: int, full: int) -> None:
    # Half of the devices hold cells: over them to the other end of the axis is as far as over the others.
    cut, size = Cut(("a",), rows), rows * full - rows // 3
    near, far = (replace(cut, window=Window(-1, width, 1, size, mode)) for width in (3, 4))
    check(Overlap(0, cut, near, size), Overlap(0, cut, far, size), MeshShape((("a", 150),)))


def test_many_devices_and_cells_become_few() -> None:
    cut = Cut(("a",), 2**20)
    wide = replace(cut, window=Window(-3, 7, 1, 2**40 - 12345, "periodic"))
    small = fewer(cut, wide, 2**40 - 12345, 2**20)
    assert small.devices < 100
    assert small.cut.block < 200


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 500), st.integers(0, 500), st.integers(0, 500)
)
def test_axes_apart_are_those_of_the_pairs(sizes: list[int], start: int, stop: int, distance: int) -> None:
    devices = math.prod(sizes)
    start, stop, distance = start % devices, stop % (devices + 1), distance % devices
    axes = NAMES[: len(sizes)]
    mesh = MeshShape(tuple(zip(axes, sizes, strict=True)))
    pairs = [((at + distance) % devices, at) for at in range(start, stop)]
    assert axes_apart([(start, stop)], distance, axes, mesh) == permuted_axes(pairs, axes, mesh)


def _mean(rows: Any) -> Any:
    return (rows[:-2] + rows[1:-1] + rows[2:]) / 3


@pytest.mark.parametrize(("mode", "size"), [("periodic", 2**40 - 2**19), ("reflect", 2**20 + 3)])
def test_the_cost_does_not_depend_on_devices_or_cells(mode: str, size: int) -> None:
    stencil = tp.Map(_mean, "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary=mode)
    graph = tp.trace(lambda u: tp.iterate(stencil, 8)(u), tp.TensorType({"y": size}, jnp.float32))
    began = time.process_time()
    plan = tp.plan(graph, AbstractMesh((2**10, 2**10), ("a", "b")), {"y": ("a", "b", tp.halo(depth=4))})
    plan.verify()
    str(plan.explain(grad=True))
    assert plan.collectives(grad=True)
    assert time.process_time() - began < 3
