"""What a stream needs of memory, known before it starts: buffers, accumulators, temporaries, and what is held."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from combinators.arguments import is_whole
from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Beside, Stored
from tapestry_jax.streaming.moving.buffers import Shape, frames_within
from tapestry_jax.streaming.moving.feeding import shapes_of
from tapestry_jax.streaming.moving.spilling import ends, most_at_once
from tapestry_jax.streaming.parts import Between, Pass, Split, made_on_devices
from tapestry_jax.streaming.turn import Programs

_UNITS = {
    "B": 1,
    **{f"{unit}B": 1000**n for n, unit in enumerate("KMGT", 1)},
    **{f"{unit}IB": 1024**n for n, unit in enumerate("KMGT", 1)},
}


SPILLED = "between passes"
"""The name of the row of values that passes make for later ones."""
_FREED = "freed"
_THREADS = 4 << 20
"""Bytes, for stacks and for what the allocator keeps for each thread, where turns are no small ones."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      name: what needs the memory.
      bytes: how much.
      what: for people.
    """

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class Store:
    """What is read from or written to, and needs memory of its own.

    Attributes:
      where: the place, for people.
      beside: what it needs beside the buffers.
    """

    where: str
    beside: Beside


Writes = Callable[[tuple[int, ...]], Store]
"""What is written to, from the sizes of the boxes that are."""


@dataclass(frozen=True)
class Budget:
    """What a stream needs, on all its devices and on the host together, while its largest part runs.

    Attributes:
      rows: by what it is needed for.
      part: which part is the largest.
      chunks: streamed dimensions, the cells of them that a device takes in a turn, and the turns.
      limit: what was given; None where nothing was.
      stores: what is read from and written to in that part, and what each needs beside the buffers, the most first.
    """

    rows: tuple[Row, ...]
    part: str
    chunks: tuple[tuple[str, int, int], ...]
    limit: int | None
    stores: tuple[Store, ...] = ()

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(row.bytes for row in self.rows)

    @property
    def held(self) -> int:
        """Bytes without those that were freed, and that the allocator may keep."""
        return self.total - sum(row.bytes for row in self.rows if row.name == _FREED)

    @property
    def fits(self) -> bool:
        """Whether it is within the limit."""
        return self.limit is None or self.total <= self.limit

    def __str__(self) -> str:
        known = [(row.name, shown(row.bytes), row.what) for row in self.rows]
        known.append(("sum", shown(self.total), self.part))
        known += [] if self.limit is None else [("limit", shown(self.limit), "fits" if self.fits else "does not fit")]
        widths = [max(len(line[column]) for line in known) for column in (0, 1)]
        lines = [f"{name:<{widths[0]}}  {size:>{widths[1]}}  {what}".rstrip() for name, size, what in known]
        chunks = [f"{dim}: {turns} turns of {block} cells" for dim, block, turns in self.chunks]
        return "\n".join([*chunks, *lines])


def budget_of(
    split: Split,
    programs: Programs,
    places: Mapping[Any, Mapping[str, int]],
    held: Sequence[int],
    read: Mapping[int, Stored],
    written: Mapping[int, Sequence[Writes]],
    ahead: int,
    behind: int,
    limit: int | None,
) -> Budget:
    """The budget of a stream. Its programs are compiled for it, and run as they are.

    Args:
      split: passes, and what stands between them.
      programs: of the stream.
      places: where the devices lie on the mesh.
      held: values that are held in memory whole, by slot.
      read: sources, by slot.
      written: what values go to that passes make, by slot.
      ahead: bytes of the ring of buffers; two turns have buffers in any case.
      behind: bytes that are being written at once.
      limit: in bytes, if any.
    """
    slots, devices = split.schedule.slots, len(places)
    entered = [slot for number, slot in enumerate(split.schedule.inputs) if number not in split.stored]
    first = dict.fromkeys(entered, 0)
    for number, part in enumerate(split.parts):
        if not isinstance(part, Pass):
            first |= {slot: number for slot in made_on_devices(part) if slot not in first}
    last, known = split.last_use, ends(split)
    kept = ((begin, max(begin, last.get(slot, begin)), slots[slot].local_bytes) for slot, begin in first.items())
    makers = {made.value: n for n, part in enumerate(split.parts) if isinstance(part, Pass) for made in part.made}
    apart = [slot for slot in held if slot in known]
    lives = ((makers[slot], known[slot], slots[slot].type.nbytes) for slot in apart)
    spilled = Row(SPILLED, most_at_once(lives), "values that lie in files with checkpoint=")
    always = (
        Row("arguments", most_at_once(kept) * devices, "read whole, or made between passes, on the devices"),
        Row("in memory", sum(slots[s].type.nbytes for s in held if s not in known), "results without a sink"),
        *([spilled] if apart else []),
    )
    found: list[tuple[str, tuple[Row, ...], tuple[Store, ...]]] = []
    if entered:
        found.append(("what is read whole, before the first pass", *_of_entered(split, entered, read)))
    for number, part in enumerate(split.parts):
        if isinstance(part, Between):
            rows = (Row("temporaries", programs.temporaries(part) * devices, "by the compiler"),)
            found.append((f"part {number + 1} of {len(split.parts)}, between passes", rows, ()))
        elif isinstance(part, Pass):
            named = f"part {number + 1} of {len(split.parts)}, a pass over `{part.dim}`"
            stores = _stores_of(part, shapes_of(part, programs, places), read, written)
            found.append((named, tuple(_of_pass(part, programs, places, stores, ahead, behind)), stores))
    largest = max(found, key=lambda each: sum(row.bytes for row in each[1]), default=("", (), ()))
    chunks = {part.dim: (part.block, part.turns) for part in split.passes}
    sizes = tuple((dim, *each) for dim, each in chunks.items())
    return Budget((*always, *largest[1]), largest[0], sizes, limit, largest[2])


def _of_entered(split: Split, entered: Sequence[int], read: Mapping[int, Stored]) -> tuple[tuple[Row, ...], Any]:
    """What is read whole comes one after the other, as an array of the host's before it is on the devices."""
    stores = [Store(read[slot].where, read[slot].beside(tuple(read[slot].shape))) for slot in entered if slot in read]
    most = max(stores, key=lambda each: each.beside.bytes, default=None)
    array = max(split.schedule.slots[slot].type.nbytes for slot in entered)
    chosen = () if most is None else (most,)
    return (Row("buffers", array, "an array that is read whole"), *_rows_of(chosen)), chosen


def _stores_of(
    part: Pass, shapes: Sequence[Shape], read: Mapping[int, Stored], written: Mapping[int, Sequence[Writes]]
) -> tuple[Store, ...]:
    """What a pass reads from and writes to, the most first."""
    found = dict[tuple[int, int], Store]()
    slots = part.region.body.slots
    boxes = [(piece.value, shape.sizes) for piece, shape in zip(part.pieces, shapes, strict=True)]
    for value, sizes in (*boxes, *((made.value, slots[made.slot].local_shape) for made in part.made)):
        source = [read[value]] if value in read else []
        stores = [Store(each.where, each.beside(sizes)) for each in source]
        for number, store in enumerate([*stores, *(each(sizes) for each in written.get(value, ()))]):
            known = found.get((value, number))
            if known is None or store.beside.bytes > known.beside.bytes:
                found[value, number] = store
    return tuple(sorted(found.values(), key=lambda each: -each.beside.bytes))


def _rows_of(stores: Sequence[Store]) -> Iterable[Row]:
    needed = [each for each in stores if each.beside.bytes]
    if needed:
        told = [f"{shown(each.beside.bytes)} for {each.where}: {each.beside.what}" for each in needed]
        yield Row("stores", sum(each.beside.bytes for each in needed), "; ".join(told))


def _of_pass(
    part: Pass,
    programs: Programs,
    places: Mapping[Any, Mapping[str, int]],
    stores: Sequence[Store],
    ahead: int,
    behind: int,
) -> Iterable[Row]:
    body, devices = part.region.body, len(places)
    shapes = shapes_of(part, programs, places)
    frames = frames_within(shapes, ahead, part.turns)
    own = sum(shape.bytes for shape in shapes)
    yield Row("buffers", frames * own, f"{frames} turns of {shown(own)}")
    yield from _rows_of(stores)
    platforms = {device.platform for device in places}
    if platforms != {"cpu"}:
        pieces = _bytes((body.slots[piece.slot] for piece in part.pieces), devices)
        yield Row("pieces", 2 * pieces, "copies on the devices, of two turns")
    carried = body.outputs[: part.region.folded + part.region.scanned]
    yield Row("carried", _bytes((body.slots[slot] for slot in carried), devices), "accumulators and totals")
    # XLA sets aside what a turn needs when it is dispatched, while the one before runs.
    temporaries = programs.temporaries(part) * devices
    yield Row("temporaries", 2 * temporaries, "of two turns, by the compiler")
    made = _bytes((body.slots[each.slot] for each in (*part.made, *part.still)), devices)
    # Measured: blocks that were freed lie between others, and up to those of two turns do not go back to the system.
    yield Row(_FREED, 2 * (temporaries + made), "kept by the allocator")
    yield Row("threads", min(_THREADS, frames * own // 4), "what those that read and write set aside")
    if made:
        # One turn makes while the results of the one before are written, and what was begun before is under way.
        yield Row("made", 2 * made, "results of two turns")
        yield Row("written", min(max(behind, made), made * part.turns), "under way to sinks")


def _bytes(slots: Iterable[Slot], devices: int) -> int:
    return sum(slot.local_bytes for slot in slots) * devices


def shown(count: int) -> str:
    """Bytes for people: `64.0 MiB`."""
    size, units = float(count), ("B", "KiB", "MiB", "GiB")
    for unit in units:
        if size < 1024 or unit == units[-1]:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{count} B"


def read_memory(memory: Any, name: str = "memory", of: str = "tp.stream") -> int | None:
    """Bytes, from a number or a text such as `"512MB"` or `"2GiB"`; for messages the argument, and what takes it.

    Raises:
      PlanError: for anything else.
    """
    if memory is None:
        return None
    if is_whole(memory) and memory > 0:
        return int(memory)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)\s*", memory.upper()) if isinstance(memory, str) else None
    if match is not None and match[2] in _UNITS and int(float(match[1]) * _UNITS[match[2]]):
        return int(float(match[1]) * _UNITS[match[2]])
    remedy = f"Write {name}='512MiB', '2GB', or a number of bytes."
    raise PlanError(message(f"{name}= of {of} is an amount of bytes", f"got {spelt(memory)}", remedy=remedy))
