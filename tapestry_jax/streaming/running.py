"""Running a stream: part after part, turn after turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from combinators.errors import message
from combinators.frozen import dataclass
from tapestry_jax.lowering.boundary import placed
from tapestry_jax.lowering.on_device.filled import first_turn
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.errors import WrittenError
from tapestry_jax.storage.in_memory import InMemory
from tapestry_jax.storage.protocols import Array, Sink, Stored
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.feeding import Feed
from tapestry_jax.streaming.moving.held import fetched
from tapestry_jax.streaming.moving.placing import pieces_of, places_of
from tapestry_jax.streaming.moving.sinks import true_cells, write_whole
from tapestry_jax.streaming.moving.spilling import Spill, ends
from tapestry_jax.streaming.moving.writing import MOST, Writing
from tapestry_jax.streaming.parts import Ending, Pass, Split
from tapestry_jax.streaming.position import Keeper, Position, Snapshot, Stopped
from tapestry_jax.streaming.turn import Programs

AHEAD = 128 << 20
"""Bytes of the buffers into which turns are read ahead, where no memory is given."""
Done = Callable[[Mapping[int, Any], Mapping[int, Sequence[Stored]]], None]
"""Told of values on the devices, and of what is stored, by slot."""
Ended = Callable[[Sequence[Any]], None]
"""Told of the leaves that a pass carries."""


@dataclass(frozen=True, eq=False)
class Runner:
    """A stream that is ready to run.

    Attributes:
      split: passes, and what stands between them.
      mesh: with devices.
      sources: what the inputs are read from, by position.
      sinks: what is written, by slot: outputs that passes make, and what is whole on the devices and goes to a sink;
        values between passes are added while they are there.
      spill: where values between passes go.
      ahead: bytes of the buffers into which turns are read ahead; two turns have buffers in any case.
      behind: bytes that are being written at once.
      known: its programs, where they are compiled already.
      older: what its one pass carries from rows before its own; None where there are none.
      done: told behind every part what there is: values on the devices, and what is stored, by slot.
      told: fingerprints of sources, by position, as the state of the job names them; None where there is none.
      ended: told behind the last turn of every pass what it carries, from which newer rows could go on.
    """

    split: Split
    mesh: Any
    sources: Sequence[Stored]
    sinks: dict[int, list[Sink]]
    spill: Spill
    ahead: int = AHEAD
    behind: int = MOST
    known: Programs | None = None
    older: Sequence[Array] | None = None
    done: Done | None = None
    told: Mapping[int, str] | None = None
    ended: Ended | None = None

    @cached_property
    def programs(self) -> Programs:
        """The programs of its parts."""
        return self.known or Programs(self.split, self.mesh)

    @cached_property
    def places(self) -> dict[Any, dict[str, int]]:
        """Where the devices lie on the mesh."""
        return places_of(self.mesh)

    def run(
        self, meter: Meter, begin: Stopped | None = None, keeper: Keeper | None = None
    ) -> tuple[dict[int, Any], dict[int, Sequence[Stored]]]:
        """Run all parts, or those that another run has not done.

        Args:
          meter: what is counted.
          begin: where another run has stopped.
          keeper: who is given snapshots.

        Returns:
          The values on the devices, and what is stored, by slot: of a value with several sinks all of them.

        Raises:
          StreamError: where a source was written while it was read.
        """
        inputs = self.split.schedule.inputs
        before, started = self._fingerprints(range(len(inputs))), Position() if begin is None else begin.position
        self._check_told(before)
        stored: dict[int, Sequence[Stored]] = {inputs[number]: [self.sources[number]] for number in self.split.stored}
        values = self._entered() | ({} if begin is None else self._restored(begin))
        self._check_read({*range(len(inputs))} - {*self.split.stored}, before)
        behind = 0
        for number, part in enumerate(self.split.parts):
            if number < started.part:
                if isinstance(part, Pass):
                    stored |= self._finished(self._left(part, started))
                continue
            if number < behind:
                continue
            if isinstance(part, Ending):
                behind = _gone_on_from(part, values)
            elif isinstance(part, Pass):
                since = begin if begin is not None and number == started.part else None
                for each in part.made:
                    self._open(each.value, again=since is not None and since.position.turns > 0)
                read = {slot: several[0] for slot, several in stored.items()}
                self.turn_all(number, part, values, read, since, keeper, meter)
                self._check_read([n for n in before if inputs[n] in {piece.value for piece in part.pieces}], before)
                stored |= self._finished([each.value for each in part.made])
            else:
                results = self.programs.between(part)([values[slot] for slot in part.part.inputs])
                values.update(zip(part.part.outputs, results, strict=True))
            if self.done is not None:
                self.done(values, stored)
            self._let_go(number, values, stored, kept=keeper is not None)
        return values, stored | self._filled(values)

    def survived(self, number: int) -> int:
        """The last part that no run turns again which goes on from what is kept, once this one is done."""
        return number

    def _open(self, slot: int, *, again: bool) -> None:
        if slot not in self.sinks:
            self.sinks[slot] = [*self.spill.make(slot, again)]

    def _left(self, part: Pass, started: Position) -> list[int]:
        """What a pass that is done has made, and is there: outputs, and what is still read."""
        now = self.split.parts[started.part]
        is_done = isinstance(now, Pass) and started.turns == now.turns
        first = started.part + is_done
        left = list[int]()
        for each in part.made:
            if self.split.last_use.get(each.value, -1) >= first:
                self._open(each.value, again=True)
                left.append(each.value)
            elif each.value not in self.sinks:
                self.spill.remove(each.value)
        return left

    def _let_go(self, number: int, values: dict[int, Any], stored: dict[int, Sequence[Stored]], *, kept: bool) -> None:
        """Forget values that nobody reads any more, on the devices and between passes.

        Behind the last pass no state is kept but the end, and a run that goes on from an older one reads again what
        that pass has read: it stays until the end is kept, by who keeps it.
        """
        for slot in [slot for slot in values if self.split.last_use.get(slot, -1) <= number]:
            del values[slot]
        for slot in self._ended(self.survived(number)):
            for each in (*stored.pop(slot, ()), *self.sinks.pop(slot)):
                each.close()
            if not kept or any(isinstance(part, Pass) for part in self.split.parts[number + 1 :]):
                self.spill.remove(slot)

    def _ended(self, number: int) -> list[int]:
        """The values between passes that are there, and that no part behind this one reads."""
        known = ends(self.split)
        return [slot for slot in self.sinks if slot in known and known[slot] <= number]

    def order(self, part: Pass, done: int) -> list[int]:
        """The numbers of the turns behind those that are done."""
        counts = range(done, part.turns)
        return [part.turns - 1 - count if part.region.reverse else count for count in counts]

    def _fingerprints(self, numbers: Iterable[int]) -> dict[int, str]:
        """Of sources that others can write; arrays in memory are the caller's."""
        files = [n for n in numbers if not isinstance(self.sources[n], InMemory)]
        return {n: self.sources[n].fingerprint() for n in files}

    def _check_told(self, now: Mapping[int, str]) -> None:
        """Raise where a source was written between the look that the state was held against and this one."""
        for number, before in (self.told or {}).items():
            if now.get(number, before) != before:
                headline = f"a source was written while the job began to read it: {self.sources[number].where}"
                raise StreamError(message(headline, remedy="Run it again once nobody writes it, in another folder."))

    def _is_another(self, number: int, before: str) -> bool:
        try:
            return self.sources[number].fingerprint() != before
        except WrittenError:
            return True

    def _check_read(self, numbers: Iterable[int], before: Mapping[int, str]) -> None:
        """Raise where what was read has changed since the beginning; results of a pass are not in their places yet."""
        for number in {*numbers} & {*before}:
            if self._is_another(number, before[number]):
                headline = f"a source was written while the stream read it: {self.sources[number].where}"
                remedy = "Open it and run again once nobody writes it; what this pass has made is not in its place."
                raise StreamError(message(headline, remedy=remedy))

    def _filled(self, values: Mapping[int, Any]) -> dict[int, list[Stored]]:
        """What is whole on the devices and goes to sinks, written."""
        found, slots = dict[int, list[Stored]](), self.split.schedule.slots
        for slot in {*self.sinks} - {*self.split.written}:
            array = true_cells(values[slot], slots[slot].type.shape)
            found[slot] = [write_whole(sink, array) for sink in self.sinks[slot]]
        return found

    def _entered(self) -> dict[int, Any]:
        """What is not read piece by piece, on the devices."""
        schedule, found = self.split.schedule, dict[int, Any]()
        for number, slot in enumerate(schedule.inputs):
            if number not in self.split.stored:
                source = self.sources[number]
                whole = np.empty(source.shape, source.dtype)
                source.read(tuple((0, size) for size in source.shape), whole).result()
                found[slot] = placed(whole, schedule.slots[slot], self.mesh)
        return found

    def _restored(self, begin: Stopped) -> dict[int, Any]:
        found = {int(name.partition("/")[2]): a for name, a in begin.arrays.items() if name.startswith("value/")}
        return {slot: self._put(array, self.split.schedule.slots[slot]) for slot, array in found.items()}

    def _put(self, array: Any, slot: Slot) -> Any:
        return jax.device_put(array, self.programs.sharding(slot))

    def turn_all(
        self,
        number: int,
        part: Pass,
        values: dict[int, Any],
        stored: Mapping[int, Stored],
        begin: Stopped | None,
        keeper: Keeper | None,
        meter: Meter,
    ) -> None:
        """Turn a pass, and put what it leaves on the devices among the values."""
        region, body = part.region, part.region.body
        operands = [values[slot] for slot in region.operands[: part.entering]]
        done = 0 if begin is None else begin.position.turns
        slots = body.outputs[: region.folded + region.scanned]
        kept = self.older
        if done and begin is not None:
            kept = [begin.arrays[f"state/{leaf}"] for leaf in range(len(slots))]
        if kept is not None:
            state = [self._put(array, body.slots[slot]) for array, slot in zip(kept, slots, strict=True)]
        else:
            state = self.programs.first(part)([values[slot] for slot in region.operands[part.entering :]])
        turn, still = self.programs.turn(part), list[Any]()
        order = self.order(part, done)
        begun = np.int32(first_turn(region.axis, reverse=region.reverse)), np.bool_(self.older is not None)
        feed = Feed(part, self.programs, self.places, stored, order, self.ahead, meter)
        with Writing(meter, self.behind) as writing, feed:
            late: tuple[Sequence[Any], int] | None = None
            for count, at in enumerate(order, done + 1):
                pieces = feed.take()
                state, made, still, is_done = turn(state, operands, pieces, np.int32(at), *begun)
                feed.taken_by(is_done)
                meter.turned()
                # The turn before is written while this one runs.
                if late is not None:
                    self._write(part, *late, writing)
                late = (made, at) if made else None
                position = Position(number, count)
                if keeper is not None and (keeper.is_due(position) or self._lets_go(number, part, count)):
                    if late is not None:
                        self._write(part, *late, writing)
                        late = None
                    self._keep(keeper, position, part, values, state, still, writing)
            if late is not None:
                self._write(part, *late, writing)
        if self.ended is not None:
            self.ended(state)
        folded = len(state) if region.ends else region.folded
        values.update(zip(region.results[:folded], state[:folded], strict=True))
        values.update({each.value: value for each, value in zip(part.still, still, strict=False)})

    def _lets_go(self, number: int, part: Pass, count: int) -> bool:
        """Whether values go behind this turn, which a run would need that goes on from an older state."""
        return count == part.turns and part is not self.split.passes[-1] and bool(self._ended(number))

    def _keep(
        self,
        keeper: Keeper,
        position: Position,
        part: Pass,
        values: Mapping[int, Any],
        state: Sequence[Any],
        still: Sequence[Any],
        writing: Writing,
    ) -> None:
        writing.flush([sink for each in part.made for sink in self.sinks[each.value]])
        known = {**values, **{each.value: value for each, value in zip(part.still, still, strict=True)}}
        made_here = {slot: value for slot, value in known.items() if slot not in self.split.schedule.inputs}
        keeper.keep(Snapshot(position, made_here, tuple(state)))

    def _write(self, part: Pass, made: Sequence[Any], at: int, writing: Writing) -> None:
        mesh, turn = self.programs.schedule.mesh, {part.region.axis: at}
        for each, array in zip(part.made, made, strict=True):
            for box, piece in pieces_of(array, part.region.body.slots[each.slot], mesh, self.places, turn):
                for sink in self.sinks[each.value]:
                    writing.begin(sink, box, piece)

    def _finished(self, slots: Iterable[int]) -> dict[int, list[Stored]]:
        return {slot: [sink.finish() for sink in self.sinks[slot]] for slot in slots}


def _gone_on_from(part: Ending, values: dict[int, Any]) -> int:
    """The part that comes next if a repetition ends here, whose results are then there; 0 if it does not."""
    if part.flag is not None and not fetched(values[part.flag]).all():
        return 0
    values.update({later: values[now] for now, later in part.results})
    return part.behind
