"""Which cells devices want, what a boundary answers for those beyond the ends, and who holds them."""

from __future__ import annotations

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.pieces import Flags, Table


@dataclass(frozen=True, eq=False)
class Wanted:
    """Device by device and column by column: the position along the axis, the cell (-1 for none), whether it is zero.

    A column without a cell that is not zero is read for padding alone: any value that a cell could have will do.
    """

    positions: Table
    cells: Table
    is_zero: Flags


def wanted_cells(target: Cut, chosen: Table, size: int, devices: int) -> Wanted:
    """What every device wants in these columns of what a cut gives it."""
    window = target.window or Window(0, 1, 1, size, "valid")
    device = np.arange(devices, dtype=np.int64)[:, None]
    columns = chosen.astype(np.int64)[None, :]
    positions = device * target.block + target.low + columns
    indices = target.block // window.step + window.before + window.after
    start = device * (target.block // window.step) - window.before
    least, end = (-window.before, window.count + window.after) if window.wraps else (0, window.count)
    low = np.maximum(least - start, 0) * window.step
    last = np.minimum(end - start, indices) - 1
    is_read = (columns >= low) & (columns < last * window.step + window.width) & (last * window.step >= low)
    is_inside = (positions >= 0) & (positions < size)
    is_answered = is_inside | (window.mode not in ("zero", "valid"))
    cells = np.where(is_read & is_answered, positions, -1)
    outside = np.flatnonzero((is_read & is_answered & ~is_inside).ravel())
    cells.ravel()[outside] = answering_cell(positions.ravel()[outside], size, window.mode)
    return Wanted(positions, cells, is_read & ~is_inside & (window.mode == "zero"))


def answering_cell(positions: Table, size: int, mode: str) -> Table:
    """The cell that the boundary reads for each position; positions inside stand for themselves."""
    if size == 0:
        return np.full_like(positions, -1)
    if mode == "periodic":
        return positions % size
    if mode == "reflect" and size > 1:
        folded = positions % (2 * size - 2)
        return np.minimum(folded, 2 * size - 2 - folded)
    if mode not in ("valid", "zero", "reflect", "edge"):
        raise ValueError(f"no exchange knows the boundary {mode!r}")
    return np.clip(positions, 0, size - 1)


def located(wanted: Wanted, source: Cut | None, target: Cut, size: int, devices: int) -> tuple[Table, Flags, Table]:
    """Where the cells lie: the place in their holder's piece, whether the device itself holds them, and the holder."""
    device = np.arange(devices, dtype=np.int64)[:, None]
    if source is None:
        return wanted.cells, wanted.cells >= 0, np.broadcast_to(device, wanted.cells.shape)
    start = device * source.block + source.low
    mode = "valid" if target.window is None else target.window.mode
    cells = wanted.cells
    if source.window is not None and source.window.wraps and mode == "periodic":
        # What lies beyond the ends is held as it is wanted.
        places = wanted.positions - start
        beyond = wanted.positions < size + source.window.after
        cells = np.where((places >= 0) & (places < source.extent) & beyond, wanted.positions, cells)
    is_local = (wanted.cells >= 0) & (cells >= start) & (cells < start + source.extent)
    owners = wanted.cells // max(source.block, 1)
    slots = np.where(is_local, cells - start, wanted.cells - owners * source.block - source.low)
    return slots, is_local, owners


def nearest_held(wanted: Wanted, source: Cut | None, size: int, devices: int) -> Table:
    """For every column the place of the nearest cell that the device holds."""
    start = np.zeros((devices, 1), np.int64)
    extent = size
    if source is not None:
        start, extent = np.arange(devices, dtype=np.int64)[:, None] * source.block + source.low, source.extent
    last = max(extent - 1, 0)
    least, most = np.clip(-start, 0, last), np.clip(size - 1 - start, 0, last)
    return np.clip(wanted.positions - start, least, np.maximum(least, most))
