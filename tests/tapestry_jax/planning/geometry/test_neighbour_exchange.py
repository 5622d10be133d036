"""Neighbour exchanges without arrays on devices: every exchange is simulated in NumPy and held against `np.pad`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_jax.planning.geometry.halo import neighbour_exchange, permuted_axes, table_entries
from tapestry_jax.planning.geometry.layout import Cut, Window, widened_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tests.boundaries import PADS
from tests.exchanged import simulated


def pieces_of(array, cut, devices):
    """The blocks of an array, padded by copies of its last cell."""
    padded = np.pad(array, (0, cut.block * devices - len(array)), mode="edge")
    return list(padded.reshape(devices, cut.block))


@st.composite
def readings(draw):
    """Devices, cells of an axis, how it is stored, and the window through which it is read."""
    devices, step, width = draw(st.integers(2, 8)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    offset, mode = draw(st.integers(-6, 4)), draw(st.sampled_from(["valid", *PADS]))
    if mode == "valid":
        count = draw(st.integers(1, 24))
        offset = abs(offset)
        size = offset + (count - 1) * step + width + draw(st.integers(0, step))
    else:
        size = draw(st.integers(1, 24))
        count = -(-size // step)
    rows = -(-count // devices)
    source = draw(st.sampled_from([None, -(-size // devices), -(-size // devices) + 1]))
    cut = None if source is None else Cut(("x",), source)
    return devices, size, cut, Cut(("x",), rows * step, Window(offset, width, step, count, mode))


@given(readings())
def test_devices_hold_what_their_indices_read(reading):
    devices, size, source, target = reading
    array, window = np.arange(1.0, size + 1), target.window
    held = [array] * devices if source is None else pieces_of(array, source, devices)
    exchange = neighbour_exchange(source, target, size, devices)
    assert exchange.hops == () or source is not None
    around = 64 + size
    padded = array if window.mode == "valid" else np.pad(array, around, mode=PADS[window.mode])
    at = 0 if window.mode == "valid" else around
    rows = target.block // window.step
    for device, got in enumerate(simulated(exchange, held)):
        assert len(got) == target.extent
        for row in range(min(rows, window.count - device * rows)):
            first = at + window.offset + window.step * (device * rows + row)
            expected = padded[first : first + window.width]
            np.testing.assert_array_equal(got[row * window.step : row * window.step + window.width], expected)
        # Padding holds cells of the array: zeros could make a gradient NaN.
        if window.mode != "zero":
            assert set(got) <= set(array)


@given(
    st.integers(2, 8),
    st.integers(4, 30),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(list(PADS)),
)
def test_boundaries_hold_in_every_turn_of_a_deep_exchange(devices, size, depth, left, right, mode):
    # Stencils that read `left` cells before and `right` behind, `depth` turns after one exchange.
    weights, wraps, block = np.arange(1.0, left + right + 2) / 4, mode == "periodic", -(-size // devices)
    array = expected = np.sin(np.arange(size)) + 1
    held, cut = pieces_of(array, Cut(("x",), block), devices), Cut(("x",), block)
    for turn in range(depth):
        before, after = left * (depth - 1 - turn), right * (depth - 1 - turn)
        wanted = Window(-left, len(weights), 1, size, mode, before, after, wraps)
        exchange = neighbour_exchange(cut, Cut(("x",), block, wanted), size, devices)
        # A mirror may show what a one-sided stencil never reads otherwise.
        assert not exchange.hops or turn == 0 or (mode == "reflect" and left != right)
        held = [np.correlate(piece, weights, "valid") for piece in simulated(exchange, held)]
        cut = widened_cut(Cut(("x",), block), size, before, after, wraps=wraps)
        expected = np.correlate(np.pad(expected, (left, right), mode=PADS[mode]), weights, "valid")
    np.testing.assert_allclose(np.concatenate(held)[:size], expected, rtol=1e-12)


@given(st.integers(2, 8), st.integers(1, 30), st.integers(0, 3), st.integers(0, 3))
def test_blocks_of_another_size(devices, size, more, other):
    array, even = np.arange(size, dtype=float), -(-size // devices)
    source, target = Cut(("x",), even + more), Cut(("x",), even + other)
    got = simulated(neighbour_exchange(source, target, size, devices), pieces_of(array, source, devices))
    np.testing.assert_array_equal(np.concatenate(got)[:size], array)


@pytest.mark.parametrize(
    ("mode", "offset", "width", "hops"),
    [
        ("zero", -1, 3, [1, 1]),
        ("edge", -1, 3, [1, 1]),
        ("reflect", -2, 5, [2, 2]),
        ("periodic", -1, 2, [1]),
        ("zero", -6, 13, [4, 4, 2, 2]),
        ("zero", 0, 1, []),
    ],
)
def test_hops_carry_exactly_the_overlap(mode, offset, width, hops):
    exchange = neighbour_exchange(Cut(("x",), 4), Cut(("x",), 4, Window(offset, width, 1, 32, mode)), 32, 8)
    assert [hop.length for hop in exchange.hops] == hops
    # Only a periodic axis is a ring.
    assert all(abs(a - b) < 4 for hop in exchange.hops for a, b in hop.pairs) == (mode != "periodic")


def test_even_periodic_exchange_needs_no_table():
    exchange = neighbour_exchange(Cut(("x",), 4), Cut(("x",), 4, Window(-1, 3, 1, 32, "periodic")), 32, 8)
    assert [(piece.part, piece.length, set(piece.starts)) for piece in exchange.held] == [
        (1, 1, {0}),
        (0, 4, {0}),
        (2, 1, {0}),
    ]
    assert not any(piece.masked for piece in exchange.held)


def test_later_turns_of_a_deep_periodic_exchange_are_crops():
    held = widened_cut(Cut(("x",), 4), 32, 3, 3, wraps=True)
    exchange = neighbour_exchange(held, Cut(("x",), 4, Window(-1, 3, 1, 32, "periodic", 1, 1, True)), 32, 8)
    assert [(piece.length, set(piece.starts)) for piece in exchange.held] == [(8, {1})]


@pytest.mark.parametrize("mode", ["periodic", "reflect"])
def test_planning_costs_what_overlaps_not_what_is_held(mode):
    size = 2**40
    exchange = neighbour_exchange(Cut(("x",), size // 8), Cut(("x",), size // 8, Window(-2, 5, 1, size, mode)), size, 8)
    assert exchange.cells == 4
    assert max(piece.length for piece in exchange.held) == size // 8


def test_permuted_axes_are_those_along_which_partners_differ():
    mesh = MeshShape((("a", 2), ("b", 4)))
    assert permuted_axes([(0, 1), (1, 2)], ("a", "b"), mesh) == ("b",)
    assert permuted_axes([(0, 1), (3, 4)], ("a", "b"), mesh) == ("a", "b")
    assert permuted_axes([(0, 4)], ("a", "b"), mesh) == ("a",)


@pytest.mark.parametrize("mode", ["valid", *PADS])
@pytest.mark.parametrize("whole", [False, True])
def test_tables_of_uneven_axes_are_of_what_overlaps_alone(mode, whole):
    size, devices = 2**26 + 1, 8
    block = -(-size // devices)
    count = size - 2 if mode == "valid" else size
    target = Cut(("x",), block, Window(0 if mode == "valid" else -1, 3, 1, count, mode))
    source = None if whole else Cut(("x",), block)
    # Two cells of each device's block end in another, and one behind the last cell is answered.
    assert table_entries(source, target, size, devices) <= 3 * devices
    exchange = neighbour_exchange(source, target, size, devices)
    assert len(exchange.held) <= 5 and bool(exchange.hops) != whole
