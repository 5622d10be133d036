"""A job that keeps what it has done in a folder, and goes on from it: `tp.stream(..., checkpoint="run/")`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from combinators.arguments import is_whole
from combinators.errors import PlanError, TapestryError, first_line, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.launching.heartbeat import beat
from tapestry_jax.plan import Plan
from tapestry_jax.storage.protocols import Array, Sink, Stored
from tapestry_jax.storage.unfinished.partial import filled_place, partial, remove
from tapestry_jax.streaming import position as running
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import Frozen, Position, check_unchanged, load, locked, save
from tapestry_jax.streaming.kept.apart import check_alone
from tapestry_jax.streaming.kept.begun import begun_sinks, check_begun, forget_sinks, named_sinks
from tapestry_jax.streaming.kept.extending import Last
from tapestry_jax.streaming.kept.interrupts import Interrupted, Interrupts, heard
from tapestry_jax.streaming.kept.origins import file_for, origins, outline, place_of
from tapestry_jax.streaming.kept.partials import remove_partials
from tapestry_jax.streaming.kept.thaw import behind_last, freeze, thaw
from tapestry_jax.streaming.kept.written import Written, without_sums
from tapestry_jax.streaming.moving.arriving import Arriving
from tapestry_jax.streaming.moving.sinks import closed_on_errors
from tapestry_jax.streaming.moving.spilling import Spill
from tapestry_jax.streaming.parts import Split
from tapestry_jax.streaming.running import Runner

WORKERS = "workers"
"""Who turns the chunks of a job with `engine=`."""


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often the state of a job is kept.

    Attributes:
      folder: of the job, absolute: the process may go to another one before it runs.
      turns: after so many turns; or None.
      seconds: after so much time; or None.
    """

    folder: Path
    turns: int | None
    seconds: float | None


@dataclass(frozen=True, eq=False)
class Resumable:
    """What is known of a job that can be kept.

    Attributes:
      planned: its plan.
      split: its passes.
      filled: the slots of outputs that go to sinks.
      sources: what it reads, in order.
      places: where its sinks lie, by the names of outputs.
      opened: from slots, the folder and whether they were begun before to their sinks; in the folder lies the rest.
      runner: what runs it, from its sinks, and where values between passes go.
      run: run it, from where it stopped, with who keeps it; the values and what is stored, by slot.
      leaves: from values and what is stored, by slot, to its outputs.
      engine: who turns its chunks, `WORKERS` or "" for this process. Another one adds floats in another order.
      told: what else says who it is, by name.
      goes_on: what its end is kept with for others to go on from, by name; None where nobody can.
    """

    planned: Plan
    split: Split
    filled: Sequence[int]
    sources: Sequence[Stored]
    places: Mapping[str, str]
    opened: Callable[[Iterable[int], Path, bool], dict[int, list[Sink]]]
    runner: Callable[[dict[int, list[Sink]], Spill], Runner]
    run: Callable[[Runner, running.Stopped | None, running.Keeper], tuple[dict[int, Any], dict[int, Sequence[Stored]]]]
    leaves: Callable[[Mapping[int, Any], Mapping[int, Sequence[Stored]]], list[Any]]
    engine: str = ""
    told: Mapping[str, str] = field(default_factory=dict[str, str])
    goes_on: Mapping[str, Array] | None = None


def read_checkpoint(folder: Any, every: Any) -> Checkpoint | None:
    """`checkpoint=` and `save_every=` of `tp.stream`.

    Raises:
      PlanError: for what is no folder, or neither a number of turns nor a time.
    """
    turns, seconds = _read_every(every)
    if folder is None:
        return None
    if not isinstance(folder, str | Path) or not str(folder):
        remedy = 'Name a folder of the job\'s own: checkpoint="run/".'
        raise PlanError(message("checkpoint= of tp.stream is a folder", f"got {spelt(folder)}", remedy=remedy))
    return Checkpoint(Path(folder).absolute(), turns, seconds)


def _read_every(every: Any) -> tuple[int | None, float | None]:
    """A number of turns, or seconds."""
    if is_whole(every) and every > 0:
        return int(every), None
    if isinstance(every, str) and every.endswith("s"):
        try:
            seconds = float(every[:-1])
        except ValueError:
            seconds = -1.0
        if 0 <= seconds < float("inf"):
            return None, seconds
    details = ("expected a number of turns, or seconds as text", f"got {spelt(every)}")
    remedy = 'Write save_every=16 for every 16 turns, or save_every="30s".'
    raise PlanError(message("save_every= of tp.stream says when a job is kept", *details, remedy=remedy))


def run_kept(job: Resumable, checkpoint: Checkpoint) -> list[Any]:
    """Run a job, or what is left of it, and keep how far it is; of a job that has finished the result is read.

    Raises:
      StreamError: where another job holds the folder, the one in it is another one than this, or other files lie there.
      FormatError: where no state in the folder can be read, or something that was written until then is damaged.
      KeyboardInterrupt: at Ctrl-C, once the turn that is under way is kept; at a second one at once.
    """
    folder = checkpoint.folder
    check_alone(folder, job.sources)
    with heard() as interrupts, locked(folder):
        now, before = _described(job), load(folder)
        if before is not None:
            check_unchanged(folder, before, now)
        is_finished = before is not None and before.position.finished
        slots = [slot for slot in job.filled if not is_finished or slot in job.split.outputs]
        try:
            sinks = job.opened(slots, folder, before is not None)
        except TapestryError as error:
            raise _gone(folder, first_line(error)) if is_finished else error from error
        with closed_on_errors(sinks):
            if before is not None and is_finished:
                return _given_again(job, before.arrays, sinks, folder)
            known = {} if before is None else before.arrays
            begun = begun_sinks(job.split, sinks, known)
            before_it = None if before is None else known
            written = Written(folder, before_it, lambda: _pause(interrupts, folder), lambda: _waiting(interrupts))
            keeper = _Keeper(job, checkpoint, replace(now, arrays=begun), interrupts, written)
            if before is None:
                written.expect_rows(_arriving(job))
                keeper.keep_nothing()
            else:
                before = replace(before, arrays=without_sums(check_begun(folder, before.arrays, begun)))
            written.follow(named_sinks(job.split, sinks), again=before is not None)
            computed = before is not None and bool(before.arrays)
            for name, source in _arriving(job).items():
                written.keep_rows(source, folder / name, keeper.keep_nothing, computed=computed)
            last = None if job.goes_on is None else Last()
            runner = job.runner(sinks, _in_folder(job, folder, known, begun, written))
            runner = replace(runner, told=_told(job, now), ended=last)
            begin = None if before is None else thaw(job.split, runner.programs, before, folder)
            values, stored = job.run(runner, begin, keeper)
            leaves = job.leaves(values, stored)
            end = Position(len(job.split.passes), finished=True)
            save(folder, replace(now, position=end, arrays=_arrays_of_end(job, values, stored, leaves, last)))
            forget_sinks(sinks)
            _remove_spilled(job, folder)
            return leaves


def _given_again(
    job: Resumable, known: Mapping[str, Array], sinks: Mapping[int, Sequence[Sink]], folder: Path
) -> list[Any]:
    """The result of a job that has finished."""
    _remove_spilled(job, folder)
    stored = _finished(sinks)
    leaves = _result(job, known, stored, folder)
    check_results(leaves, known, folder)
    _check_sums(_sums(job.split, stored, leaves), known, folder)
    forget_sinks(sinks)
    return leaves


def _arrays_of_end(
    job: Resumable,
    values: Mapping[int, Any],
    stored: Mapping[int, Sequence[Stored]],
    leaves: Sequence[Any],
    last: Last | None,
) -> dict[str, Array]:
    """What is kept of a job that has finished."""
    held = [n for n, slot in enumerate(job.split.outputs) if slot in values and not isinstance(leaves[n], Stored)]
    arrays = {f"output/{n}": leaves[n] for n in held} | _results(leaves) | _sums(job.split, stored, leaves)
    if last is not None and job.goes_on is not None:
        arrays |= behind_last(job.split, last.state) | dict(job.goes_on)
    return arrays


def _in_folder(
    job: Resumable, folder: Path, known: Mapping[str, Array], begun: dict[str, Array], written: Written
) -> Spill:
    """Values between passes in the folder of the job.

    `begun` is told which of them are there, and `written` what is in them, for the next state.
    """
    tokens = dict[int, list[str]]()

    def make(slot: int, again: bool) -> Sequence[Sink]:
        made = job.opened([slot], folder, again)
        with closed_on_errors(made):
            found = begun_sinks(job.split, made, known if again else {})
            if again:
                check_begun(folder, known, found)
            written.follow(named_sinks(job.split, made), again=again)
            tokens[slot] = list(found)
            begun.update(found)
        return made[slot]

    def gone(slot: int) -> None:
        for name in tokens.pop(slot, ()):
            del begun[name]
        written.forget(origins(job.split)[slot])
        _remove_value(job.split, slot, folder)

    return Spill(make, gone)


def _described(job: Resumable) -> Frozen:
    """Who the job is, at its beginning."""
    names = [node.name for node in job.planned.graph.inputs]
    plan = job.planned
    told = {"graph": plan.graph.key, "passes": outline(job.split), "accumulate": str(plan.accumulate)}
    told |= {"engine": job.engine} if job.engine else {}
    told |= job.told
    sources = {name: source.fingerprint() for name, source in zip(names, job.sources, strict=True)}
    return Frozen(told, sources, job.places, Position(), {})


def _told(job: Resumable, now: Frozen) -> dict[int, str]:
    """The fingerprints of sources that others can write, by position."""
    numbered = enumerate(zip(now.sources.values(), job.sources, strict=True))
    return {n: known for n, (known, source) in numbered if not isinstance(source, Arriving)}


def _finished(sinks: Mapping[int, Sequence[Sink]]) -> dict[int, Sequence[Stored]]:
    return {slot: [sink.finish() for sink in several] for slot, several in sinks.items()}


def _result(
    job: Resumable, arrays: Mapping[str, Array], stored: Mapping[int, Sequence[Stored]], folder: Path
) -> list[Any]:
    split = job.split
    given = {split.schedule.inputs[number]: [job.sources[number]] for number in split.stored} | dict(stored)
    kept: dict[int, Array] = {}
    for number, slot in enumerate(split.outputs):
        name, kind = f"output/{number}", split.schedule.slots[slot].type
        found = arrays.get(name)
        if found is not None and (found.dtype, found.shape) == (kind.dtype, kind.shape):
            kept[slot] = found
        elif found is not None or slot not in given:
            expected = f"expected {kind.dtype} {kind.shape}"
            has = "it is not there" if found is None else f"{expected}, got {found.dtype} {found.shape}"
            raise _gone(folder, f"`{name}` of its state is none of its results: {has}")
    return job.leaves(kept, given)


def _results(leaves: Sequence[Any]) -> dict[str, Array]:
    """What tells whether the results in sinks are still those of the job."""
    stored = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, Stored)}
    return {f"result/{n}": np.frombuffer(leaf.fingerprint().encode(), np.uint8) for n, leaf in stored.items()}


def check_results(leaves: Sequence[Any], before: Mapping[str, Array], folder: Path) -> None:
    """Raise where a result in a sink was written since it was kept.

    Raises:
      StreamError: naming it.
    """
    now = _results(leaves)
    for name, array in now.items():
        # States of earlier releases do not have them.
        if name in before and not np.array_equal(before[name], array):
            where = leaves[int(name.partition("/")[2])].where
            for leaf in leaves:
                if isinstance(leaf, Stored):
                    leaf.close()
            raise _gone(folder, f"`{where}` was written since")


def _sums(split: Split, stored: Mapping[int, Sequence[Stored]], leaves: Sequence[Any]) -> dict[str, Array]:
    """Checksums of the results that lie in the folder, and were read from there."""
    inside = [n for n, slot in enumerate(split.outputs) if slot in stored and not isinstance(leaves[n], Stored)]
    return {f"sum/{n}": np.frombuffer(hashlib.sha256(_bytes(leaves[n])).digest(), np.uint8) for n in inside}


def _bytes(leaf: Array) -> Any:
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def _check_sums(now: Mapping[str, Array], before: Mapping[str, Array], folder: Path) -> None:
    # States of earlier releases do not have them.
    if any(name in before and not np.array_equal(before[name], found) for name, found in now.items()):
        raise _gone(folder, "a file in it was written since, or is damaged")


def _gone(folder: Path, why: str) -> StreamError:
    remedy = "Name another folder to compute it again, and say overwrite=True where something is in its place."
    return StreamError(
        message(f"the job in {folder} has finished, and its result is not there any more", why, remedy=remedy)
    )


def _remove_spilled(job: Resumable, folder: Path) -> None:
    """Remove values between passes, what workers have committed, and rows that have arrived: nobody reads them more."""
    remove_partials(folder)
    for slot in job.split.kept:
        _remove_value(job.split, slot, folder)
    for name, source in _arriving(job).items():
        source.close()
        remove(folder / name)


def _remove_value(split: Split, slot: int, folder: Path) -> None:
    place = place_of(split, slot, folder)
    for path in (place, partial(place), filled_place(place)):
        remove(path)


def _arriving(job: Resumable) -> dict[str, Arriving]:
    """Sources that are iterated over, by the files in the folder that they are put into first."""
    numbered = enumerate(job.sources)
    return {file_for(f"source-{n}", each.dtype): each for n, each in numbered if isinstance(each, Arriving)}


class _Keeper:
    """Keeps a job as often as was asked for, and at an interrupt."""

    def __init__(
        self, job: Resumable, checkpoint: Checkpoint, now: Frozen, interrupts: Interrupts, written: Written
    ) -> None:
        self._job, self._checkpoint, self._now, self._interrupts = job, checkpoint, now, interrupts
        self._written, self._turns, self._since = written, 0, time.monotonic()

    def is_due(self, position: running.Position) -> bool:
        """Whether this turn is the last one of the interval."""
        del position
        beat()
        self._turns += 1
        turns, seconds = self._checkpoint.turns, self._checkpoint.seconds
        return (
            self._interrupts.number is not None
            or (turns is not None and self._turns >= turns)
            or (seconds is not None and time.monotonic() - self._since >= seconds)
        )

    def is_stopped(self) -> bool:
        """Whether a signal has come."""
        return self._interrupts.number is not None

    def keep(self, snapshot: running.Snapshot) -> None:
        """Write the state."""
        self._save(*freeze(self._job.split, snapshot))
        self._turns, self._since = 0, time.monotonic()
        _end_if_interrupted(self._interrupts, self._checkpoint.folder)

    def keep_nothing(self) -> None:
        """Write the state of a job that has computed nothing yet."""
        self._save(self._now.position, {})

    def _save(self, position: Position, arrays: Mapping[str, Array]) -> None:
        arrays = {**self._now.arrays, **self._written.arrays(), **arrays}
        save(self._checkpoint.folder, replace(self._now, position=position, arrays=arrays))


def _pause(interrupts: Interrupts, folder: Path) -> None:
    """Between pieces of what was written before, which is read again: a sign of life, and the end at an interrupt."""
    beat()
    _end_if_interrupted(interrupts, folder)


@contextmanager
def _waiting(interrupts: Interrupts) -> Generator[None]:
    """Around every wait for rows, of which nothing is kept before all have come: a sign of life, and no patience."""
    beat()
    with interrupts.at_once("rows that arrive are kept once all have come: run the job again, with what makes them"):
        yield


def _end_if_interrupted(interrupts: Interrupts, folder: Path) -> None:
    if interrupts.number is not None:
        raise Interrupted(f"the job is kept in {folder}: run it again, and it goes on where it was")
