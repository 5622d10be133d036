"""Exchanges that ranges tell: drawn at random, and run on cells that know their names."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tapestry_jax.planning.geometry.drift import Drift, drifts
from tapestry_jax.planning.geometry.layout import Cut, Window

Problem = tuple[Cut, Cut, int, int]
"""The cut that an axis has, the one that is wanted, the size of the axis, and the devices."""

NOTHING = -1


@st.composite
def problems(draw: Any, meshes: tuple[int, ...] = (1, 2, 3, 5, 7, 8, 13, 31, 64)) -> Problem:
    """Every size of axis, windows larger than a block, behind the ends or of nothing, fewer indices than devices."""
    devices = draw(st.sampled_from(meshes))
    step = draw(st.integers(1, 3))
    rows = draw(st.sampled_from([1, 2, 3, 5, 9, 17]))
    wanted, mode = rows * step, draw(st.sampled_from(["valid", "zero", None]))
    held = draw(st.just(wanted) | st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33]))
    near = min(held * devices, max(wanted * devices + draw(st.integers(-3, 6)), 0))
    size = draw(st.just(near) | st.integers(0, held * devices))
    if mode is None:
        return Cut(("a",), held), Cut(("a",), wanted), size, devices
    offset = draw(st.integers(0, 6) if mode == "valid" else st.integers(-9, 9) | st.just(-40))
    width = draw(st.sampled_from([0, 1, 2, 3, 5, 7, 30]))
    most = max((size - offset - width) // step + 1, 0) if mode == "valid" else -(-size // step)
    count = min(draw(st.just(most) | st.integers(0, most)), rows * devices)
    before, after = draw(st.just((0, 0)) | st.tuples(st.integers(0, 3), st.integers(0, 3)))
    found = Cut(("a",), wanted, Window(offset, width, step, count, mode, before, after))
    assert drifts(Cut(("a",), held), found) or held == wanted
    return Cut(("a",), held), found, size, devices


def _read(cut: Cut, size: int, device: int) -> set[int]:
    """The positions that the indices of a device read, one by one, as a window is defined."""
    window, read = cut.window or Window(0, 1, 1, size, "valid"), set[int]()
    own = cut.block // window.step
    for index in range(device * own - window.before, device * own + own + window.after):
        if 0 <= index < window.count:
            read.update(range(window.offset + index * window.step, window.offset + index * window.step + window.width))
    return read


def wanted_cells(cut: Cut, size: int, device: int) -> list[int]:
    """The cell that a device wants in each of its columns."""
    read, start = _read(cut, size, device), device * cut.block + cut.low
    return [at if at in read and 0 <= at < size else NOTHING for at in range(start, start + cut.extent)]


def spanned(cut: Cut, size: int, device: int) -> range:
    """The cells from the first that a device reads to the last: what lies between two windows comes along."""
    read = _read(cut, size, device)
    return range(max(min(read, default=0), 0), min(max(read, default=-1) + 1, size))


def received(drift: Drift, problem: Problem) -> list[list[int]]:
    """The cell that every device has in each of its columns afterwards, or -1."""
    source, cut, size, devices = problem
    blocks = [
        [at if at < size else NOTHING for at in range(d * source.block, (d + 1) * source.block)] for d in range(devices)
    ]
    parts: list[list[int]] = [[] for _ in range(devices)]
    for number, (distance, length) in enumerate(zip(drift.distances.tolist(), drift.lengths.tolist(), strict=True)):
        arrived = [[NOTHING] * length for _ in range(devices)]
        if distance:
            pairs, starts = drift.sent(number, devices)
            assert all(len(set(side)) == len(side) for side in zip(*pairs, strict=True))
            for sender, receiver in pairs:
                assert sender == receiver + distance
                arrived[receiver] = blocks[sender][starts[sender] : starts[sender] + length]
        for device in range(devices):
            parts[device] += arrived[device] if distance else blocks[device]
    places, first, end = (table.tolist() for table in drift.read(devices))
    return [
        [part[places[d] + at] if first[d] <= at < end[d] else NOTHING for at in range(cut.extent)]
        for d, part in enumerate(parts)
    ]


def is_right(found: list[list[int]], problem: Problem) -> bool:
    """Whether every device has the cells that it wants."""
    _, cut, size, devices = problem
    wanted = np.array([wanted_cells(cut, size, device) for device in range(devices)])
    return bool((np.array(found) == wanted)[wanted != NOTHING].all())
