"""The values between picks: labels for the layouts in which they lie and are read, and the price of every pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.pricing.roofline import ON_CHIP, runs_as_one
from tapestry_jax.searching.exact.homes import Home, Reading, Scope
from tapestry_jax.searching.exact.model import Pair, Reader, Value
from tapestry_jax.searching.exact.prices import Parts, Prices, Want


def value_between(
    prices: Prices, scope: Scope, slot: int, home: Home, readings: Sequence[Reading], room: float = math.inf
) -> Value:
    """A value, and whatever can become of it on the way to its readers.

    Args:
      prices: of changes of layout.
      scope: where it lies.
      slot: that it has there.
      home: in which layouts it may lie.
      readings: all of its readers, in the order of the program.
      room: bytes of a device beside its arguments; what is sent and what comes have to fit there together.
    """
    known = scope.schedule.slots[slot]
    kind = known.type
    made_here = home.maker is not None
    single = len(readings) == 1 and bool(readings[0].works) and readings[0].alone and made_here
    near = made_here and any(home.near)
    made_keys = [
        (
            layout,
            bool(home.scattered) and home.scattered[at],
            _makes(home, at) if single else None,
            near and home.near[at],
        )
        for at, layout in enumerate(home.layouts)
    ]
    read_keys = [
        [
            (want, reading.same, reading.live, _reads(reading, at, single=single) if single or near else None)
            for at, want in enumerate(reading.wants)
        ]
        for reading in readings
    ]
    made = {key: label for label, key in enumerate(dict.fromkeys(made_keys))}
    read = {key: label for label, key in enumerate(dict.fromkeys(key for keys in read_keys for key in keys))}
    alone = len(read) == 1 or len(readings) == 1
    found = _Found(prices, scope, slot, home, _both({want for want, _, _, _ in read}), alone)
    leaves = any(reading.leaves for reading in readings)
    # There are many pairs: what is asked of each is found once for either side of them.
    stored = [want.layout.stored(kind.shape, prices.mesh) for want, _, _, _ in read]
    wanted = [
        (*key, label, *map(prices.number, (key[0], key[0].layout, lying)), known.bytes_in(lying))
        for (key, label), lying in zip(read.items(), stored, strict=True)
    ]
    shaped = prices.number((kind.shape, kind.dtype, home.loop or 1))
    for (have, scattered, making, stay), number in made.items():
        lies, held, there = prices.number(have), spread(have.axes), known.bytes_in(have)
        for want, same, live, reading, label, reads, lay, lying, size in wanted:
            # What is scattered all read as it lies; and what a loop carries lies as the first reads it.
            if (scattered or same) and lying != lies:
                continue
            if not live:
                found.seconds[number, label] = 0.0
                continue
            if lying != lies and _changing(there, size, home) > room:
                continue
            found.add((number, label), have, want, (shaped, lies, reads), lay)
            is_same = lies == lay and held == want.varying
            if is_same and making and reading and found.fuse((number, label), making, reading):
                continue
            if stay and is_same and reading:
                found.saved[number, label] = 0.0, found.seconds_of(reading[2] - reading[2] / ON_CHIP, reading[3])
            elif stay and leaves and not is_same:
                saved = saved_where_changed(scope, slot, there, True)
                found.saved[number, label] = found.seconds_of(saved, home.runs), 0.0
    readers = (
        Reader(each.pick, tuple(read[key] for key in keys), each.needed or bool(scope.received or home.loop))
        for each, keys in zip(readings, read_keys, strict=True)
    )
    return found.value(tuple(made[key] for key in made_keys), tuple(readers))


def _changing(there: int, made: int, home: Home) -> float:
    """Bytes of a device while a value is sent: what it makes of it, beside what is there; a slice takes none."""
    return 0.0 if made < there else made + (0.0 if home.given else there)


class _Found:
    """Prices and sizes of pairs, as far as they have been looked at."""

    def __init__(
        self, prices: Prices, scope: Scope, slot: int, home: Home, both: Mapping[Want, Want], alone: bool
    ) -> None:
        self.prices, self.scope, self.slot, self.home, self.alone = prices, scope, slot, home, alone
        self.both = both
        # What is the same in every turn is changed once, before the loop.
        self.times = scope.outside if home.constant else scope.times
        self.leading = home.loop or 1
        self.known = scope.schedule.slots[slot]
        self.seconds: dict[Pair, float] = {}
        self.saved: dict[Pair, tuple[float, float]] = {}
        self.common: dict[Any, tuple[int, float]] = {}
        self.shares: dict[Pair, tuple[int, ...]] = {}
        self.kept: dict[Pair, int] = {}
        self.sizes: dict[Any, tuple[int, float]] = {}
        self.behind: dict[Pair, tuple[tuple[int, float], ...]] = {}
        self.together: dict[Pair, tuple[frozenset[str], ...]] = {}
        self._bytes: dict[int, int] = {}

    def add(self, pair: Pair, have: Layout, want: Want, known: tuple[int, int, int], lay: int) -> None:
        """A change of layout, the numbers by which its price is known, and that of the layout which is read."""
        parts = self.prices.parts(self.known.type, have, want, self.leading, known)
        own = parts.own
        if parts.common and self.alone:
            own += sum(each for _, each in parts.common)
        self.seconds[pair] = self.times * own
        if parts.sums and self.home.given and self.scope.outside == 1:
            self.seconds[pair] -= sum(self.prices.latencies[axes] for axes in parts.sums)
            self.together[pair] = parts.sums
        if self.scope.group is not None and not self.home.constant:
            self._behind(pair, self.scope.group, parts)
        size = self._size(pair, have, want, parts)
        if size:
            self.kept[pair] = self.sizes.setdefault((pair[0], lay), (len(self.sizes), size))[0]
        if parts.common and not self.alone:
            for key, each in parts.common:
                self._share(pair, key, self.times * each)
        if self.both and (forwards := self.both.get(want)):
            # One change serves both kinds of readers; what is gathered once more comes on top.
            once = self.times * self.prices.parts(self.known.type, have, forwards, self.leading).own
            self.seconds[pair] -= once
            self._share(pair, forwards, once)

    def _share(self, pair: Pair, key: Any, seconds: float) -> None:
        """What a pair has in common with others of the same layout, by a key."""
        number, _ = self.common.setdefault((pair[0], key), (len(self.common), seconds))
        self.shares[pair] = (*self.shares.get(pair, ()), number)

    def _behind(self, pair: Pair, group: int, parts: Parts) -> None:
        """What it sends behind computing, and what it computes."""
        forward, backward = parts.behind
        if not (forward or backward or any(parts.copied)):
            return
        # What readers have in common is sent once: it is left out, so that the price is none too high.
        passes = (forward if self.alone else 0.0, backward)
        found = (
            (2 * group + number, self.scope.times * (sent - self.scope.share * copied))
            for number, (sent, copied) in enumerate(zip(passes, parts.copied, strict=True))
        )
        told = tuple(each for each in found if each[1])
        if told:
            self.behind[pair] = told

    def _size(self, pair: Pair, have: Layout, want: Want, parts: Parts) -> float:
        """Bytes that are kept of a value for the backward pass, as it is read."""
        scope, home = self.scope, self.home
        if home.loop:
            # Gradients of all turns, before they are summed over the mesh.
            return float(home.loop * self.known.bytes_in(have)) if parts.casts else 0.0
        if home.constant or home.given or not (scope.flow.carries_gradient(self.slot) or want.smooth):
            return 0.0
        turns = 0 if scope.received else scope.turns
        if parts.receives:
            turns = max(scope.turns, scope.received)
        if pair[1] not in self._bytes:
            self._bytes[pair[1]] = self.known.bytes_in(want.layout)
        return float(turns * self._bytes[pair[1]])

    def fuse(self, pair: Pair, making: Any, reading: Any) -> bool:
        """A value that stays inside of one kernel, if the two that make and read it can run as one."""
        head, merged, size, stay = making
        heads, reads, read, runs = reading
        if merged or not runs_as_one(self.prices.machine.platform, head, heads, reads):
            return False
        # What the backward pass reads is written, fused or not.
        own = 0.0 if self.scope.flow.carries_gradient(self.slot) else written(self.scope, self.slot, size, stay)
        if own or read:
            self.saved[pair] = self.seconds_of(own, self.home.runs), self.seconds_of(read, runs)
        return True

    def seconds_of(self, size: float, runs: int) -> float:
        """In which memory moves so many bytes, in all turns."""
        return self.scope.times * runs * size / self.prices.machine.streams

    def value(self, labels: tuple[int, ...], readers: tuple[Reader, ...]) -> Value:
        """All of it."""
        common, sizes = (tuple(each for _, each in found.values()) for found in (self.common, self.sizes))
        found = self.seconds, common, self.shares, self.saved, self.kept, sizes, self.behind, self.together
        return Value(self.home.pick, labels, readers, *found)


def times_alike(value: Value, times: int) -> Value:
    """So many values that are alike."""
    if times == 1:
        return value
    return replace(
        value,
        seconds={pair: times * each for pair, each in value.seconds.items()},
        common=tuple(times * each for each in value.common),
        saved={pair: (times * own, times * other) for pair, (own, other) in value.saved.items()},
        sizes=tuple(times * each for each in value.sizes),
        behind={pair: tuple((at, times * each) for at, each in own) for pair, own in value.behind.items()},
    )


def _both(wants: Set[Want]) -> dict[Want, Want]:
    """Wants that begin with what readers do that do not need the value backwards, beside others that do."""
    forwards = {want: _forwards(want) for want in wants}
    both = {forwards[want] for want in wants - {*forwards.values()}} & wants
    return {want: once for want, once in forwards.items() if once in both}


def _forwards(want: Want) -> Want:
    """The same of a reader whose gradient does not need what is gathered."""
    return replace(want, needed=False) if want.gathers == "again" else want


def _makes(home: Home, option: int) -> Any:
    work, place = home.works[option], home.place
    heads = work.heads[0]
    stay = bool(home.near) and home.near[option]
    return heads[place] if place < len(heads) else "apart", work.merged, work.writes[place], stay


def _reads(reading: Reading, option: int, *, single: bool) -> Any:
    if not reading.works:
        return None
    work = reading.works[option]
    heads, reads = work.heads if single else ((), ())
    return heads, reads, work.reads[reading.place] if reading.place < len(work.reads) else 0.0, reading.runs


def written(scope: Scope, slot: int, size: float, stay: bool) -> float:
    """What a maker writes, as bytes of memory; what layers keep they stack there, and what they hand on lies there."""
    kept, loop = scope.flow.carries_gradient(slot), scope.loop
    if not stay or (loop is not None and (kept or slot in scope.schedule.outputs[: loop.carries])):
        return size
    return size / ON_CHIP


def saved_where_changed(scope: Scope, slot: int, size: float, stay: bool) -> float:
    """Of that, what it does not write where a loop hands it on in another layout."""
    kept, loop = scope.flow.carries_gradient(slot), scope.loop
    if not stay or kept or loop is None or slot not in scope.schedule.outputs[: loop.carries]:
        return 0.0
    return size - size / ON_CHIP
