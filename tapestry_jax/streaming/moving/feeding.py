"""Feeding a pass: pieces are read ahead into a ring of buffers, and handed to the turns in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tapestry_jax.storage.protocols import Array, Stored
from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.arriving import Arriving
from tapestry_jax.streaming.moving.buffers import Frame, Shape, frames_within
from tapestry_jax.streaming.moving.placing import together, views_of
from tapestry_jax.streaming.moving.reading import Reading, begin_reading
from tapestry_jax.streaming.parts import Pass
from tapestry_jax.streaming.turn import Programs, as_read

Under = tuple[Frame, list[list[tuple[Reading, list[Any]]]]]
"""A turn that is being read: its buffers, and for every value the readings with the devices that they are for."""


def shapes_of(part: Pass, programs: Programs, places: Mapping[Any, Mapping[str, int]]) -> list[Shape]:
    """What a turn of a pass reads."""
    found: list[Shape] = []
    for piece in part.pieces:
        slot = as_read(part.region.body.slots[piece.slot])
        # Turns differ in where their pieces lie, and not in how large or how many they are.
        first = views_of(slot, programs.schedule.mesh, places, {part.region.axis: 0})
        found.append(Shape(slot.local_shape, slot.type.dtype, len(first)))
    return found


class Feed:
    """The pieces of the turns of a pass.

    Args:
      part: the pass.
      programs: of the stream.
      places: where the devices lie on the mesh.
      stored: what is read, by slot.
      order: the numbers of the turns.
      most: bytes of all buffers; two turns have buffers in any case.
      meter: what is counted.
    """

    def __init__(
        self,
        part: Pass,
        programs: Programs,
        places: Mapping[Any, Mapping[str, int]],
        stored: Mapping[int, Stored],
        order: Sequence[int],
        most: int,
        meter: Meter,
    ) -> None:
        self._part, self._programs, self._places, self._stored, self._meter = part, programs, places, stored, meter
        self._waiting = deque(order)
        shapes = shapes_of(part, programs, places)
        self._idle = deque(Frame(shapes) for _ in range(frames_within(shapes, most, len(order))))
        self._reading: deque[Under] = deque()
        self._taken: Frame | None = None

    def __enter__(self) -> Feed:
        self._begin_all_but(0)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            # Of what makes rows nothing may come any more, and nothing is waited for.
            for source in self._stored.values():
                if isinstance(source, Arriving):
                    source.give_up()
        # Nothing may be written into buffers that are gone.
        for under in self._reading:
            for readings in under[1]:
                for begun in readings:
                    begun[0].settle()
        for frame in self._idle:
            self._free(frame)

    def take(self) -> list[Any]:
        """The arrays of the next turn, on the devices."""
        if not self._reading:
            self._begin_all_but(0)
        frame, values = self._reading.popleft()
        arrays: list[Any] = []
        for piece, readings in zip(self._part.pieces, values, strict=True):
            slot = as_read(self._part.region.body.slots[piece.slot])
            held: dict[Any, Array] = {}
            for reading, devices in readings:
                with self._meter.waiting("read"):
                    held.update(dict.fromkeys(devices, reading.wait()))
            arrays.append(together(self._programs, slot, held))
        self._taken = frame
        return arrays

    def taken_by(self, consumer: Any) -> None:
        """Note what is there once the turn that took the last arrays is done; its buffers come last in the ring."""
        assert self._taken is not None
        self._taken.taken_by(consumer)
        self._meter.begin("compute", sum(buffer.nbytes for each in self._taken.buffers for buffer in each))
        # No more than two turns are under way: each has temporaries and results of its own.
        for frame in self._idle:
            self._free(frame)
        self._idle.append(self._taken)
        self._taken = None
        # The turn before is waited for while this one runs, and its buffers are read into.
        self._begin_all_but(1)

    def _begin_all_but(self, count: int) -> None:
        while len(self._idle) > count and self._waiting:
            self._begin()

    def _free(self, frame: Frame) -> None:
        if frame.is_taken:
            with self._meter.waiting("compute"):
                frame.free()
            self._meter.end("compute")

    def _begin(self) -> None:
        frame, turn = self._idle.popleft(), self._waiting.popleft()
        self._free(frame)
        values: list[list[tuple[Reading, list[Any]]]] = []
        for piece, buffers in zip(self._part.pieces, frame.buffers, strict=True):
            slot = as_read(self._part.region.body.slots[piece.slot])
            views = views_of(slot, self._programs.schedule.mesh, self._places, {self._part.region.axis: turn})
            source = self._stored[piece.value]
            readings = [
                (begin_reading(source, wanted, buffer), devices)
                for (wanted, devices), buffer in zip(views.items(), buffers, strict=False)
            ]
            for reading, _ in readings:
                self._meter.under_way("read", reading.futures, reading.bytes)
            values.append(readings)
        self._reading.append((frame, values))
