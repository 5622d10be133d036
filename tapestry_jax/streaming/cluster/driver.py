"""A run whose passes are turned by workers. The driver merges what they committed, and writes what they made."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import first_line, message
from combinators.frozen import dataclass
from combinators.settings import settings
from tapestry_jax.plan import Plan
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.errors import WrittenError
from tapestry_jax.storage.opening import Opened, opened
from tapestry_jax.storage.protocols import Array, Stored
from tapestry_jax.streaming.cluster.handed import Handed, as_handed
from tapestry_jax.streaming.cluster.ranges import merged_in_order, ranges
from tapestry_jax.streaming.cluster.task import OPERANDS, run_range, turned_name
from tapestry_jax.streaming.cluster.totals import Totals, before_ranges, commit_before, rounds, totals_in
from tapestry_jax.streaming.cluster.waiting import as_they_end, no_worker
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.kept.origins import outline
from tapestry_jax.streaming.kept.partials import Partials, key_of, remove_partials
from tapestry_jax.streaming.measured.metrics import Meter
from tapestry_jax.streaming.moving.views import own_box
from tapestry_jax.streaming.moving.writing import Writing
from tapestry_jax.streaming.parts import Pass
from tapestry_jax.streaming.position import Keeper, Position, Snapshot, Stopped
from tapestry_jax.streaming.running import Runner


@dataclass(frozen=True, eq=False)
class Work:
    """What workers need to know of a job.

    Attributes:
      client: of the cluster.
      planned: the plan.
      dims: the streamed dimensions.
      folder: of the job.
      places: how what passes have made is opened, by slot.
    """

    client: Any
    planned: Plan
    dims: tuple[str, ...]
    folder: Path
    places: Mapping[int, Opened]

    @cached_property
    def graph(self) -> Any:
        """The graph as it travels."""
        return as_handed(self.planned.graph)


@dataclass(frozen=True, eq=False)
class OnWorkers(Runner):
    """A stream whose passes are turned by workers.

    Attributes:
      work: what they need to know.
    """

    work: Work | None = None

    def survived(self, number: int) -> int:
        """A run that goes on turns the last pass again: what is kept is what there is before each."""
        return max((at for at in range(number + 1) if isinstance(self.split.parts[at], Pass)), default=0) - 1

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
        """Have a pass turned, range by range; what is committed already is not turned again."""
        assert self.work is not None and keeper is not None
        keep = _Keep(self, keeper, number, values)
        keep.now()
        operands = [np.asarray(values[slot]) for slot in part.region.operands[: part.entering]]
        handed = self._handed(number, part, stored, operands)
        partials = Partials(self.work.folder, handed.key, handed.step)
        remove_partials(self.work.folder, partials)
        if partials.read(OPERANDS) is None:
            older = {f"older/{at}": array for at, array in enumerate(self.older or ())}
            partials.commit(OPERANDS, {f"operand/{at}": array for at, array in enumerate(operands)} | older)
        self._find_totals(part, handed, partials, keep)
        todo = []
        for first, last in ranges(part):
            if partials.read(turned_name(first, last)) is None:
                todo.append((first, last))
            else:
                _count(meter, last - first)
        for turns in in_any_order(self.work.client, handed, todo):
            _count(meter, turns)
            keep.after(turns)
        state, still = self._merged(part, partials, meter)
        if self.ended is not None:
            self.ended([*state, *self._totals_behind(part, partials)])
        values.update(zip(part.region.results, state, strict=False))
        values.update({each.value: value for each, value in zip(part.still, still, strict=True)})

    def _find_totals(self, part: Pass, handed: Handed, partials: Partials, keep: _Keep) -> None:
        """Have found what the scans of every range go on from, and commit it for the workers."""
        assert self.work is not None
        cut = ranges(part)
        known: list[Totals] = [{} for _ in cut]
        # What all ranges come to is what none goes on from.
        inner = cut[:-1]
        for number, narrow in enumerate(rounds(part) if inner else ()):
            todo = [each for each in inner if partials.read(turned_name(*each, number)) is None]
            for turns in in_any_order(self.work.client, handed, todo, number):
                keep.after(turns)
            found = [self._totals_of(narrow, partials, each, number) for each in inner]
            for node in sorted(narrow.anew):
                before = before_ranges(part, self.programs, node, [each[node] for each in found], inner)
                for own, leaves in zip(known[1:], before, strict=True):
                    own[node] = tuple(np.asarray(leaf) for leaf in leaves)
            for (begin, _), own in zip(cut[1:], known[1:], strict=True):
                commit_before(partials, number + 1, begin, own)

    def _totals_of(self, narrow: Pass, partials: Partials, cut: tuple[int, int], number: int) -> Totals:
        found, slots = partials.read(turned_name(*cut, number)), narrow.region.body.outputs
        if found is None or not _fits(found, [narrow.region.body.slots[slot] for slot in slots]):
            raise _lost(partials, cut)
        return totals_in(narrow, [found[f"state/{leaf}"] for leaf in range(len(slots))])

    def _totals_behind(self, part: Pass, partials: Partials) -> list[Array]:
        """The leaves of the totals of scans behind all turns: the last range has gone on from those before it."""
        region, cut = part.region, ranges(part)[-1]
        slots = [region.body.slots[slot] for slot in region.body.outputs[: region.folded + region.scanned]]
        found = partials.read(turned_name(*cut))
        if found is None or not _fits(found, slots):
            raise _lost(partials, cut)
        return [found[f"state/{leaf}"] for leaf in range(region.folded, len(slots))]

    def _handed(self, number: int, part: Pass, stored: Mapping[int, Stored], operands: Sequence[Array]) -> Handed:
        work = self.work
        assert work is not None
        read = {piece.value for piece in part.pieces}
        sources: dict[int, tuple[Opened, str]] = {}
        for slot in sorted(read):
            own = work.places.get(slot)
            how = own or opened(stored[slot])
            assert how is not None, "sources without a place are refused before"
            sources[slot] = how, _fingerprint(how, None if own else stored[slot])
        step, plan = self.split.passes.index(part), work.planned.to_json()
        # What a pass before has made lies where it lies: what is in it follows from the rest.
        told: dict[str, object] = {
            "graph": work.planned.graph.key,
            "plan": plan,
            "dims": list(work.dims),
            "outline": outline(self.split),
            "sources": [source.fingerprint() for source in self.sources],
            "step": step,
            "settings": {name: str(value) for name, value in settings().items()},
        }
        axes = tuple(map(str, work.planned.mesh.axis_names))
        key, folder = key_of(told, [*operands, *(self.older or ())]), str(work.folder.absolute())
        return Handed(
            key, folder, work.graph, work.planned.graph.key, plan, axes, work.dims, outline(self.split), number, step,
            sources, self.ahead, settings(),
        )  # fmt: skip

    def _merged(self, part: Pass, partials: Partials, meter: Meter) -> tuple[list[Any], list[Any]]:
        """The state of all ranges, merged in order; what they made is written on the way."""
        body, cut = part.region.body, ranges(part)
        slots = [body.slots[slot] for slot in body.outputs[: part.region.folded]]
        last = list[Any]()
        with Writing(meter, self.behind) as writing:

            def leaf(at: int) -> tuple[list[Any], int]:
                found = partials.read(turned_name(*cut[at]))
                if found is None or not _fits(found, slots):
                    raise _lost(partials, cut[at])
                self._write_made(part, found, cut[at], writing)
                last[:] = [self._put(found[f"still/{n}"], body.slots[s.slot]) for n, s in enumerate(part.still)]
                state = [self._put(found[f"state/{n}"], slot) for n, slot in enumerate(slots)]
                return state, part.turns - cut[at][1] if part.region.reverse else cut[at][0]

            def merge(first: tuple[list[Any], int], then: tuple[list[Any], int]) -> tuple[list[Any], int]:
                least = first[1], then[1]
                return self.programs.merged(part, least)(first[0], then[0]) if slots else [], min(least)

            state, _ = merged_in_order(len(cut), leaf, merge)
        return state, last

    def _write_made(self, part: Pass, found: Mapping[str, Array], cut: tuple[int, int], writing: Writing) -> None:
        (at_device,) = self.places.values()
        for count in range(*cut):
            at = part.turns - 1 - count if part.region.reverse else count
            for number, each in enumerate(part.made):
                slot = part.region.body.slots[each.slot]
                box, _ = own_box(slot, self.programs.schedule.mesh, {**at_device, part.region.axis: at})
                if all(start < stop for start, stop in box):
                    for sink in self.sinks[each.value]:
                        writing.begin(sink, box, found[f"made/{number}/{at}"])


class _Keep:
    """Keeps the job before a pass: what is done of the pass itself, partials keep."""

    def __init__(self, runner: Runner, keeper: Keeper, number: int, values: Mapping[int, Any]) -> None:
        inputs = {*runner.split.schedule.inputs}
        made = {slot: value for slot, value in values.items() if slot not in inputs}
        self._keeper, self._snapshot = keeper, Snapshot(Position(number), made, ())

    def now(self) -> None:
        self._keeper.keep(self._snapshot)

    def after(self, turns: int) -> None:
        """Keep it if that is due behind some turns; behind none, where the job is to end."""
        if self._keeper.is_due(self._snapshot.position) if turns else self._keeper.is_stopped():
            self.now()


def _fingerprint(how: Opened, source: Stored | None) -> str:
    """Of what workers will open; the driver may have it open since before it was changed.

    Raises:
      StreamError: where it is another than the source that the driver has.
    """
    again = how.again()
    try:
        found = again.fingerprint()
    finally:
        again.close()
    if source is not None and _is_another(source, found):
        headline = f"a source was written since it was opened: {source.where}"
        raise StreamError(message(headline, remedy="Open it again, and run the job in another folder."))
    return found


def _is_another(source: Stored, now: str) -> bool:
    try:
        return source.fingerprint() != now
    except WrittenError:
        return True


def _fits(found: Mapping[str, Array], slots: Sequence[Slot]) -> bool:
    dtypes = [found[f"state/{leaf}"].dtype for leaf in range(len(slots))]
    return dtypes == [slot.type.dtype for slot in slots]


def _count(meter: Meter, turns: int) -> None:
    for _ in range(turns):
        meter.turned()


def in_any_order(
    client: Any, handed: Handed, todo: Sequence[tuple[int, int]], number: int | None = None
) -> Iterator[int]:
    """Have ranges run, or a round of them; the number of turns of each, as it is committed.

    0 now and then while there is no worker.
    """
    # No two runs share names of tasks: a scheduler may remember what is no longer there.
    run = secrets.token_hex(8)
    futures: dict[Any, int] = {}
    with _cancelled(client, futures):
        for begin, stop in todo:
            key = f"{turned_name(begin, stop, number)}-{run}"
            future = client.submit(run_range, handed, begin, stop, number, key=key, pure=False)
            futures[future] = stop - begin
        for future in as_they_end(client, futures):
            if future is None:
                yield 0
                continue
            # Of one that is lost the worker has died behind its end: what it has committed is there.
            if future.status not in ("finished", "lost"):
                raise _failed(client, future)
            yield futures[future]


@contextmanager
def _cancelled(client: Any, futures: Mapping[Any, int]) -> Generator[None]:
    try:
        yield
    except BaseException:
        client.cancel(list(futures))
        raise


def _failed(client: Any, future: Any) -> BaseException:
    error = future.exception() if future.status == "error" else None
    if error is not None and type(error).__name__ == "NoWorkerError":
        return no_worker(client, first_line(error))
    told = f"{future.key} is {future.status}" if error is None else f"{type(error).__name__}: {first_line(error)}"
    remedy = "Mend what it says and run the job again: what is committed is not run again."
    failed = StreamError(message("workers have not turned all of a pass", told, remedy=remedy))
    failed.__cause__ = error
    return failed


def _lost(partials: Partials, cut: tuple[int, int]) -> StreamError:
    headline = f"what turns {cut[0]} to {cut[1]} have come to is gone or damaged"
    remedy = "Run the job again: these turns are run again. Workers need the folder that the driver has."
    return StreamError(message(headline, f"it was committed in {partials.place}", remedy=remedy))
