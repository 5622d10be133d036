"""How long a collective takes on a machine: from measured tables where there are some, else from links.

Bytes are those of `Collective`: per device, the larger of operand and result. With `n` devices and `V` bytes a device
has to take in, and to send, this much of `V`:

| kind | moved | why |
|---|---|---|
| all-gather, reduce-scatter | (n - 1) / n | all but its own part |
| all-reduce | 2 (n - 1) / n | a reduce-scatter and an all-gather |
| all-to-all | (n - 1) / n on a switch; n / 8 on a ring, n / 4 on a line | on a torus everything goes hop by hop |
| collective-permute | 1 | to a neighbour |

Rings of a torus send both ways at once, lines one way at a time; the lines of several axes work together. Where axes
leave a group the collective is hierarchical: what goes over the slow links is a part already reduced, or not yet
gathered, of each device inside, so that more devices in a group send less each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from combinators.errors import MeshError, message, spelt
from tapestry_jax.machines.figures import Link, Table
from tapestry_jax.machines.laid import Laid, Line, Place

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


@lru_cache(maxsize=65536)
def seconds(laid: Laid, kind: str, axes: tuple[str, ...], size: float) -> float:
    """Seconds of one collective.

    Args:
      laid: the mesh on its machine.
      kind: as in `Collective`.
      axes: the mesh axes, together.
      size: bytes per device, as `Collective` counts them.

    Raises:
      MeshError: for a kind that has no price, rather than the price of another.
    """
    if kind not in KINDS:
        raise MeshError(
            message("this collective has no price", f"got {spelt(kind, 60)}", f"priced are {', '.join(KINDS)}")
        )
    places = [place for place in map(laid.place, axes) if place.inside * place.outside > 1]
    if not places or not size:
        return 0.0
    if laid.machine.tables:
        measured = _measured(laid, kind, axes, size)
        if measured is not None:
            return measured
    return _by_links(laid, kind, places, size)


@lru_cache(maxsize=1024)
def latency(laid: Laid, kind: str, axes: tuple[str, ...]) -> float:
    """Seconds that a collective takes however little it sends: once where several are sent as one.

    Args:
      laid: the mesh on its machine.
      kind: as in `Collective`.
      axes: the mesh axes, together.
    """
    if laid.machine.tables:
        return seconds(laid, kind, axes, 1)
    places = [place for place in map(laid.place, axes) if place.inside * place.outside > 1]
    return _by_links(laid, kind, places, 0.0) if places else 0.0


def _measured(laid: Laid, kind: str, axes: tuple[str, ...], size: float) -> float | None:
    """By the table of these axes, or one axis after the other by theirs; None where a table is missing."""
    tables = {(table.kind, frozenset(table.axes)): table for table in laid.machine.tables}
    whole = tables.get((kind, frozenset(axes)))
    if whole is not None:
        return interpolated(whole, size)
    total = 0.0
    for axis in axes:
        place = laid.place(axis)
        devices = place.inside * place.outside
        if devices == 1:
            continue
        table = tables.get((kind, frozenset({axis})))
        if table is None:
            return None
        total += interpolated(table, size)
        if kind in ("all-gather", "reduce-scatter"):
            # The next axis has only the part of one device of this one.
            size /= devices
    return total


def interpolated(table: Table, size: float) -> float:
    """The seconds of so many bytes: linear between the points, beyond the last by the last two, never less than 0."""
    points = table.points
    if len(points) == 1 or size <= points[0][0]:
        return points[0][1]
    after = next((number for number in range(1, len(points)) if points[number][0] >= size), len(points) - 1)
    (low, start), (high, end) = points[after - 1], points[after]
    if high == low:
        return end
    slope = max(end - start, 0.0) / (high - low)
    return start + slope * (size - low)


def _by_links(laid: Laid, kind: str, places: Sequence[Place], size: float) -> float:
    machine = laid.machine
    inside = math.prod(place.inside for place in places)
    outside = math.prod(place.outside for place in places)
    lines = [line for place in places for line in place.lines]

    def within(kind: str, size: float) -> float:
        if inside == 1:
            return 0.0
        if machine.torus:
            return _torus(machine.inside, kind, lines, size)
        return _switch(machine.inside, kind, inside, size)

    def across(kind: str, size: float) -> float:
        return _switch(machine.between, kind, outside, size) if outside > 1 else 0.0

    match kind:
        case "all-gather" | "reduce-scatter":
            return within(kind, size) + across(kind, size / inside)
        case "all-reduce":
            if outside == 1:
                return within(kind, size)
            return within("reduce-scatter", size) + across(kind, size / inside) + within("all-gather", size)
        case "all-to-all":
            # The part for devices of the same group, and the part for all others, each to its device.
            return within(kind, size / outside) + across(kind, size)
        case _:
            # Some device of the group sends to the next one.
            return across(kind, size) if outside > 1 else within(kind, size)


def _switch(link: Link, kind: str, devices: int, size: float) -> float:
    bandwidth, latency = link.bandwidth.value, link.latency.value
    hops = math.ceil(math.log2(devices))
    part = (devices - 1) / devices
    match kind:
        case "all-reduce":
            return 2 * (hops * latency + size * part / bandwidth)
        case "collective-permute":
            return latency + size / bandwidth
        case "all-to-all":
            return latency + size * part / bandwidth
        case _:
            return hops * latency + size * part / bandwidth


def _torus(link: Link, kind: str, lines: Sequence[Line], size: float) -> float:
    bandwidth, latency = link.bandwidth.value, link.latency.value
    devices = math.prod(line.length for line in lines)
    part = (devices - 1) / devices
    # Devices between two of a line use the same links for their own: each gets its share.
    rate = sum(_ways(line) * bandwidth / line.stride for line in lines)
    delay = latency * sum(_longest(line) for line in lines)
    match kind:
        case "all-reduce":
            return 2 * (delay + size * part / rate)
        case "collective-permute":
            worst = max(lines, key=lambda line: line.stride)
            return latency * worst.stride + size * worst.stride / bandwidth
        case "all-to-all":
            crossing = max(_crossing(line) * line.stride for line in lines)
            return delay + size * crossing / bandwidth
        case _:
            return delay + size * part / rate


def _ways(line: Line) -> int:
    return 2 if line.closed and line.length > 2 else 1


def _longest(line: Line) -> int:
    """Hops between the two devices that are farthest apart."""
    return line.stride * (line.length // 2 if line.closed else line.length - 1)


def _crossing(line: Line) -> float:
    """Of the bytes of a device, how many go over the busiest link in one direction in an all-to-all.

    Every device sends each other one an equal part. Over the middle of a line of `n` go n/2 * n/2 parts of V/n; on a
    ring two links share them.
    """
    half = (line.length // 2) * ((line.length + 1) // 2) / line.length
    return half / 2 if line.closed and line.length > 2 else half
