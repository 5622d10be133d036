"""Exchanges of two sizes of blocks, or wide windows, told by ranges: as every device by itself says, at any size."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.index_space.boundary import BOUNDARIES
from tapestry_jax.planning.geometry import drift as drift_module
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.drift import drifts
from tapestry_jax.planning.geometry.drifting import drifting
from tapestry_jax.planning.geometry.halo import neighbour_exchange, permuted_axes
from tapestry_jax.planning.geometry.hops import sends, sent_cells, sent_hops
from tapestry_jax.planning.geometry.layout import Cut, Layout, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.way import layout_changes
from tapestry_jax.planning.proof.changed import check_exchange
from tapestry_jax.planning.proof.site import Site
from tests.drifts import Problem, is_right, problems, received, spanned
from tests.thoroughly import some


@settings(max_examples=some(150))
@given(problems())
def test_every_device_has_what_its_indices_read(problem: Problem) -> None:
    assert is_right(received(drifting(*problem), problem), problem)


@settings(max_examples=some(150))
@given(problems())
def test_no_more_is_sent_than_every_device_by_itself_needs(problem: Problem) -> None:
    source, cut, size, devices = problem
    needed: dict[int, dict[int, int]] = {}
    for device in range(devices):
        for cell in spanned(cut, size, device):
            if cell // source.block != device:
                counts = needed.setdefault(cell // source.block - device, {})
                counts[device] = counts.get(device, 0) + 1
    drift = drifting(*problem)
    told = {
        distance: (length, set(range(low, stop)))
        for distance, length, low, stop in np.stack([drift.distances, drift.lengths, *drift.receivers()], 1).tolist()
        if distance
    }
    assert told == {distance: (max(counts.values()), set(counts)) for distance, counts in needed.items()}
    # The tables of all devices merge what goes to as far a device round both ends.
    if len({distance % devices for distance in told}) == len(told):
        lengths = sorted(hop.length for hop in neighbour_exchange(*problem).hops)
        assert lengths == sorted(length for length, _ in told.values())


@settings(max_examples=some(60))
@given(problems((6, 24, 60)))
def test_what_is_predicted_is_what_is_sent_over_each_mesh_axis(problem: Problem) -> None:
    source, cut, size, devices = problem
    mesh, axes = MeshShape((("a", 2), ("b", devices // 6), ("c", 3))), ("b", "a", "c")
    change = Overlap(0, *(Cut(axes, each.block, each.window) for each in (source, cut)), size)
    drift, sent = drifting(*problem), list[Any]()
    for number, (distance, length) in enumerate(zip(drift.distances, drift.lengths, strict=True)):
        if distance:
            sent.append((int(length), permuted_axes(drift.sent(number, devices)[0], axes, mesh)))
    with patch.object(drift_module, "_MOST_ENTRIES", -1):
        hops = sent_hops(change, mesh)
        assert (sends(change, mesh), sent_cells(change, mesh)) == (bool(sent), sum(length for length, _ in sent))
    assert sorted(sent) == sorted(each for hop in hops for each in [(hop.length, hop.axes(axes, mesh))] * hop.alike)


@settings(max_examples=some(60))
@given(st.sampled_from([1, 2, 5, 8]), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.data())
def test_what_a_boundary_answers_comes_behind_the_cells(
    devices: int, held: int, step: int, rows: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, min(held, rows * step) * devices))
    mode = data.draw(st.sampled_from([mode for mode in BOUNDARIES if mode not in ("valid", "zero")]))
    window = Window(data.draw(st.integers(-9, 9)), data.draw(st.integers(0, 7)), step, -(-size // step), mode)
    source, cut = Layout((Cut(("a",), held),)), Layout((Cut(("a",), rows * step, window),))
    mesh = MeshShape((("a", devices),))
    for change in layout_changes((size,), source, cut, frozenset(("a",)), mesh):
        if isinstance(change, Overlap):
            assert change.source is None or change.source.block == change.cut.block or drifts(change.source, change.cut)
            check_exchange(change, size, Site(mesh), "path")


def _windows(rows: int, devices: int, reach: int) -> tp.Graph:
    window = tp.Map(lambda x: x[..., :-reach] + x[..., reach:], "(y+[dy]) -> y", sizes={"dy": reach + 1})
    return tp.trace(window, tp.TensorType({"y": rows * devices + reach}, jnp.float32))


def _strided(size: int, mode: str) -> tp.Graph:
    window = tp.Map(lambda x: x[:-3:2] * 2 + x[3::2], "(2*y+[dy]-1) -> y", sizes={"dy": 4}, boundary=mode)
    return tp.trace(lambda x: window(tp.Map(jnp.sin)(x)), tp.TensorType({"y": size}, jnp.float32))


def _sent(graph: tp.Graph, axes: tuple[str, ...], mesh: Any) -> list[Any]:
    """What is sent forwards, after each of planning, proof and prediction took no second."""
    began = [time.process_time()]
    plan = tp.plan(graph, mesh, {"y": axes})
    began.append(time.process_time())
    plan.verify()
    began.append(time.process_time())
    found = plan.collectives(grad=True)
    began.append(time.process_time())
    assert max(np.diff(began)) < 1
    return [each for each in found if each.kind == "collective-permute" and not each.backward]


@pytest.mark.parametrize(
    ("rows", "count", "most"),
    [
        (64, 16133, 65),
        pytest.param(1, 2**19 + 1, 2, marks=pytest.mark.thorough),
        (63, 16385, 64),
        (256, 4082, 257),
        (2**20, 2, 2**20 - 1),
    ],
)
def test_a_window_that_keeps_fewer_cells_than_it_reads_costs_the_same_on_many_devices(
    rows: int, count: int, most: int
) -> None:
    # Blocks of a cell more than those that they are read in, so that each device of many is another case.
    devices = 2**20
    sent = _sent(_windows(rows, devices, 2), ("a",), AbstractMesh((devices,), ("a",)))
    # The last device reads cells of so many devices before it, at every distance down to the next, and the first of the
    # one behind it.
    last = devices - 1
    assert count == last - rows * last // (rows + 1) + 1
    assert (sum(each.times for each in sent), max(each.bytes for each in sent)) == (count, 4 * most)


def _widest(size: int, width: int, mode: str) -> tp.Graph:
    """The most of a window of equal blocks."""

    def most(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (width,), (1,), "VALID")

    window = tp.Map(most, f"(y+[dy]-{width // 2}) -> y", sizes={"dy": width}, boundary=mode)
    return tp.trace(window, jax.ShapeDtypeStruct((size,), jnp.float32))


@pytest.mark.parametrize(
    ("size", "width", "count"),
    [
        (2**24, 2**14, 1024),
        pytest.param(2**30, 2**20, 1024, marks=pytest.mark.thorough),
        (2**40, 2**19, 2),
        (2**40, 2**24, 16),
    ],
)
def test_windows_that_reach_over_many_devices_and_cells_take_no_tables(size: int, width: int, count: int) -> None:
    # Half of a window is on either side: as many whole blocks, or what is left of one, come from each.
    sent = _sent(_widest(size, width, "zero"), ("a",), AbstractMesh((2**20,), ("a",)))
    assert sum(each.times for each in sent) == count


@pytest.mark.parametrize("mode", ["periodic", "reflect", "edge"])
def test_windows_that_are_answered_from_tables_are_refused_where_these_take_long(mode: str) -> None:
    mesh = AbstractMesh((2**20,), ("a",))
    assert sum(each.times for each in _sent(_widest(2**40, 2**16, mode), ("a",), mesh)) == 2
    with pytest.raises(tp.PlanError, match="reaches over too many cells of other devices") as error:
        tp.plan(_widest(2**30, 2**20, mode), mesh, {"y": "a"})
    assert str(error.value).splitlines()[1:] == [
        "  along 'a': 1,049,599 cells, 1,024 of them its own",
        f'  with the boundary "{mode}" that takes tables of 4,315,934,700 entries, at most 2,097,152 are made',
        '  Take boundary="zero", which needs no tables, or place the dimension on fewer devices.',
    ]


def test_windows_that_no_machine_would_exchange_are_refused() -> None:
    with pytest.raises(tp.PlanError, match="reaches over too many devices") as error:
        tp.plan(_widest(2**22, 2**14, "zero"), AbstractMesh((2**20,), ("a",)), {"y": "a"})
    assert str(error.value).splitlines()[1:] == [
        "  16,387 cells are read in blocks of 4",
        "  4,097 ranges of devices take them from 12,589,057 others; at most 2,097,152 are planned",
        "  Leave the dimension whole, or place it on fewer devices.",
    ]


@pytest.mark.parametrize("mode", [mode for mode in BOUNDARIES if mode != "valid"])
def test_strides_over_blocks_of_two_sizes_cost_the_same_on_two_mesh_axes(mode: str) -> None:
    assert _sent(_strided(2**40 + 1, mode), ("a", "b"), AbstractMesh((2**10, 2**10), ("a", "b")))


@pytest.mark.parametrize(
    ("held", "wanted"), [(1, 1000), pytest.param(2**20, 1, marks=pytest.mark.thorough), (5, 4), (4, 5)]
)
def test_ranges_are_as_many_as_distances(held: int, wanted: int) -> None:
    devices = 2**20
    size = devices * min(held, wanted)
    drift = drifting(Cut(("a",), held), Cut(("a",), wanted), size, devices)
    assert len(drift.reads.low) <= len(drift.runs.low) <= 4 * len(drift.distances)


def test_ranges_tell_what_is_linear_in_the_number_of_the_device() -> None:
    held, window = Cut(("a",), 3), Window(-1, 4, 2, 9, "zero")
    assert drifts(held, Cut(("a",), 4, window)) and not drifts(Cut(("a",), 4), Cut(("a",), 4, window))
    # Blocks of which windows were read, a boundary that other cells answer, and indices that begin within a stride.
    others = [replace(window, mode=mode) for mode in ("periodic", "reflect", "edge")] + [replace(window, step=3)]
    assert not any(drifts(held, Cut(("a",), 4, other)) for other in others)
    assert not drifts(Cut(("a",), 3, window), Cut(("a",), 4, window))


def test_permutations_that_are_alike_take_the_time_of_all_of_them() -> None:
    plan = tp.plan(_windows(1, 8, 2), AbstractMesh((8,), ("a",)), {"y": "a"})
    assert max(each.alike for each in plan.collectives()) > 1
    sent = [each for each in plan.cost(tp.machines.H100).transfers if each.kind == "collective-permute"]
    shown = [each for each in plan.timeline(tp.machines.H100).events if each.what == "collective-permute"]
    assert sum(each.busy for each in shown) == pytest.approx(sum(each.seconds for each in sent))
    assert sum(each.bytes for each in shown) == sum(each.bytes * each.times for each in sent)
