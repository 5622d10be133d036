"""Kills jobs at random moments, and sees that they end with the bits of those that nobody kills.

    python -m tests.tapestry_jax.streaming.kept.kills --kills 1000 --seed 0

Three kinds: the process of a job; workers that turn the ranges of one, and their driver; and ranks of `tapestry launch`
that run jobs, and their supervisor. Each is killed several times by SIGKILL, and goes on in a new process, in chunks of
another size where that is exact. What was lost by a kill is what had been done since the last state: turns, and
seconds. Jobs are prepared once (`prepared.py`), in each of a few lanes, which are processes that kill by themselves:
most of a job's time here is waiting.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tapestry_jax.streaming.cluster import driver, ranges
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import load, locked
from tapestry_jax.streaming.kept import checkpoint
from tests.quickly import quickly
from tests.tapestry_jax.streaming.kept.forks import PATIENCE, Notes, ended, forked, kill, slowed
from tests.tapestry_jax.streaming.kept.killed_jobs import JOBS, arrays, days, moments, ran
from tests.tapestry_jax.streaming.kept.killed_ranks import supervised
from tests.tapestry_jax.streaming.kept.killed_workers import Workers
from tests.tapestry_jax.streaming.kept.prepared import WORKERS, prepare

_PAUSE = 0.002  # seconds by which every sync and every rename of a file takes longer, so that kills fall between them
_MOST = 0.2  # seconds after the first turn within which a kill falls
_EARLY = 0.1  # of the kills fall before the first turn
_DYING = 0.25  # of the workers
KINDS = ("workers", "drivers", "ranks", "drivers", "drivers", "drivers", "drivers")
"""The kinds of trials, in the order in which a lane takes them, again and again; each lane begins at another one."""

Wanted = dict[tuple[str, int, bool], list[np.ndarray]]
"""Results, by the name of a job, the size of its chunks, and whether workers turn them."""


@dataclass
class Found:
    """What the kills have come to."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys([*KINDS, "their drivers", "supervisors"], 0))
    jobs: int = 0
    wrong: list[str] = field(default_factory=list[str])
    turns: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])

    @property
    def all(self) -> int:
        """All kills."""
        return sum(self.kills.values())

    def add(self, other: dict[str, object]) -> None:
        """What another lane has come to."""
        more = Found(**other)  # type: ignore[arg-type]
        self.kills = {name: count + more.kills[name] for name, count in self.kills.items()}
        self.jobs += more.jobs
        for mine, own in ((self.wrong, more.wrong), (self.turns, more.turns), (self.seconds, more.seconds)):
            mine += own  # type: ignore[arg-type]

    def told(self) -> str:
        """All of it, as JSON."""
        lost = sorted(self.seconds) or [0.0]
        return json.dumps(
            {
                "kills": self.all,
                **self.kills,
                "jobs": self.jobs,
                "wrong": self.wrong,
                "turns lost, most": max(self.turns, default=0),
                "turns lost, mean": sum(self.turns) / max(1, len(self.turns)),
                "seconds lost, most": lost[-1],
                "seconds lost, median": lost[len(lost) // 2],
                "CPU seconds, until jobs are prepared": round(_cpu(resource.RUSAGE_SELF), 1),
                "CPU seconds, then": round(_cpu(resource.RUSAGE_CHILDREN), 1),
            }
        )


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def run(name: str, size: int, folder: Path, every: object, engine: str | None = None) -> None:
    """Run a job in this process, noting what it does, and store what it gives."""
    notes = Notes(folder / "events")
    slowed(_PAUSE)
    due, keep = checkpoint._Keeper.is_due, checkpoint._Keeper.keep
    checkpoint._Keeper.is_due = lambda keeper, position: (notes.add("turn"), due(keeper, position))[1]  # type: ignore[method-assign]
    checkpoint._Keeper.keep = lambda keeper, snapshot: (keep(keeper, snapshot), notes.add("kept"))[0]  # type: ignore[method-assign]
    notes.add("begun")
    result = arrays(ran(name, size, folder, every, engine))
    np.savez(folder / "result.partial.npz", *result)
    (folder / "result.partial.npz").rename(folder / "result.npz")


class Lane:
    """One trial after the other.

    Args:
      top: a folder for them.
      wanted: the results of jobs that nobody kills.
      seed: decides what is killed when.
      each: kills of one trial, at most.
    """

    def __init__(self, top: Path, wanted: Wanted, seed: int, each: int) -> None:
        self._kinds = itertools.islice(itertools.cycle(KINDS), 2 * seed % len(KINDS), None)
        self._top, self._wanted, self._chance, self._most, self._each = top, wanted, random.Random(seed), each, each
        self.found = Found()

    def trial(self, left: int) -> None:
        """A job of some kind, killed until it has ended, or often enough; `left` times at most."""
        self._each = min(self._most, left)
        folder, wrong = self._top / f"{self.found.jobs}", len(self.found.wrong)
        folder.mkdir(parents=True)
        getattr(self, f"_{next(self._kinds)}")(folder)
        if len(self.found.wrong) == wrong:
            shutil.rmtree(folder)

    def _drivers(self, folder: Path) -> None:
        names = sorted({name for name, _, by_workers in self._wanted if not by_workers})
        name = self._chance.choice(names)
        self._killed_often("drivers", folder, lambda: self._job(name, folder, None))
        self._compare(name, folder)

    def _workers(self, folder: Path) -> None:
        name = self._chance.choice(sorted({name for name, _, by_workers in self._wanted if by_workers}))
        self._killed_often("their drivers", folder, lambda: self._job(name, folder, WORKERS))
        self.found.kills["workers"] += sum(what == "worker" for what, _ in Notes(folder / "events").read())
        self._compare(name, folder)

    def _ranks(self, folder: Path) -> None:
        known = sorted({name for name, _, _ in self._wanted if not JOBS[name].batches})
        names = [self._chance.choice(known) for _ in range(2)]
        places, notes = [folder / f"{number}" for number in range(2)], Notes(folder / "events")
        for place in places:
            place.mkdir()

        def supervisor() -> Callable[[], None]:
            seed = self._chance.randrange(2**32)

            def work() -> None:
                told = (folder / "told").open("a")
                for number in (1, 2):
                    os.dup2(told.fileno(), number)
                jobs = [self._job(name, place, None) for name, place in zip(names, places, strict=True)]
                chance = random.Random(seed)
                assert supervised(lambda n: jobs[n](), 2, self._each, chance, lambda: notes.add("rank"), notes) == 0

            return work

        process, status = forked(supervisor()), None
        if self._chance.random() < 0.4:
            status = ended(process, time.monotonic() + self._chance.random() * 2 * _MOST)
            if status is None:
                kill(process)
                self.found.kills["supervisors"] += 1
                _wait_for([what.partition("-")[2] for what, _ in notes.read() if what.startswith("guardian-")], places)
                process = forked(supervisor())
        # One that ended before it was to be killed is waited for no second time.
        if status is None:
            status = ended(process, time.monotonic() + PATIENCE)
        if status != 0:
            self._fail(folder, status)
        self.found.kills["ranks"] += sum(what == "rank" for what, _ in notes.read())
        for name, place in zip(names, places, strict=True):
            self._compare(name, place)

    def _job(self, name: str, folder: Path, engine: str | None) -> Callable[[], None]:
        """A run of a job, drawn here and made in another process."""
        sizes = [size for each, size, by_workers in self._wanted if each == name and by_workers == (engine is not None)]
        size, every = self._chance.choice(sizes), self._chance.choice([1, 2, 3, "0.02s"])
        seed = self._chance.randrange(2**32)
        days(name, folder)  # before anybody is killed who writes them

        def work() -> None:
            notes = Notes(folder / "events")
            driver.in_any_order = Workers(random.Random(seed), _DYING, lambda: notes.add("worker"))
            run(name, _fitting(name, folder, size, sizes), folder, every, engine)

        return work

    def _killed_often(self, kind: str, folder: Path, job: Callable[[], Callable[[], None]]) -> None:
        """Have a job run again and again, and kill it until it has ended, or often enough."""
        notes = Notes(folder / "events")
        for number in range(self._each + 1):
            before = len(notes.read())
            process = forked(job())
            if number == self._each:
                until = time.monotonic() + PATIENCE
            else:
                until = self._moment(process, notes, before)
            status = ended(process, until)
            if status is None and number < self._each:
                kill(process)
                self.found.kills[kind] += 1
                self._note_loss(notes.read(before))
                _wait_for([], [folder])
                continue
            if status != 0:
                self._fail(folder, status)
            return

    def _moment(self, process: int, notes: Notes, before: int) -> float:
        """When it is killed: at some time behind its first turn, or before."""
        limit = time.monotonic() + PATIENCE
        if self._chance.random() > _EARLY:
            while not any(what == "turn" for what, _ in notes.read(before)) and time.monotonic() < limit:
                if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    break
                time.sleep(0.004)
        return time.monotonic() + self._chance.random() * _MOST

    def _note_loss(self, noted: list[tuple[str, float]]) -> None:
        """What had been done since the last state when the kill came."""
        since = max((at for at, (what, _) in enumerate(noted) if what == "kept"), default=0)
        if noted:
            self.found.turns.append(sum(what == "turn" for what, _ in noted[since:]))
            self.found.seconds.append(time.monotonic() - noted[since][1])

    def _compare(self, name: str, folder: Path) -> None:
        """Hold what is stored against what nobody has killed."""
        self.found.jobs += 1
        by_workers = any(what == "worker" for what, _ in Notes(folder / "events").read())
        found = [each for key, each in self._wanted.items() if key[0] == name and key[2] == by_workers]
        expected = (found or [each for key, each in self._wanted.items() if key[0] == name])[0]
        with np.load(folder / "result.npz") as stored:
            got = [stored[key] for key in stored.files]
        if [(a.dtype, a.shape, a.tobytes()) for a in got] != [(a.dtype, a.shape, a.tobytes()) for a in expected]:
            self.found.wrong.append(f"{name} in {folder}")

    def _fail(self, folder: Path, status: int | None) -> None:
        told = folder / "told"
        raise AssertionError(f"{folder} ended with {status}\n{told.read_text() if told.exists() else ''}")


def _fitting(name: str, folder: Path, size: int, sizes: list[int]) -> int:
    """A size of chunks that ends where the job stands."""
    state = load(folder / "run") if (folder / "run").exists() and not JOBS[name].batches else None
    return size if state is None or state.position.cells % size == 0 else min(sizes)


def _wait_for(processes: list[str], folders: list[Path]) -> None:
    """Until processes are gone, and nobody holds the folders of jobs."""
    limit = time.monotonic() + PATIENCE
    while any(map(_runs, processes)) or not all(map(_is_free, folders)):
        assert time.monotonic() < limit, f"{processes} go on, or {folders} are held"
        time.sleep(0.004)


def _runs(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_free(place: Path) -> bool:
    try:
        with locked(place / "run"):
            return True
    except StreamError:
        return False


def prepared(top: Path, *, few: bool) -> Wanted:
    """Jobs in all sizes of chunks, or a few of them, and their results."""
    ranges._TASKS = 2
    wanted: Wanted = {}
    for name, job in JOBS.items():
        if few and job.program is moments:
            continue  # it takes as long to compile as all others
        for size in job.sizes[-2:] if few else job.sizes:
            wanted[name, size, False] = prepare(name, size, top / f"{name}-{size}")
        if job.batches and job.dtype == "int32":
            wanted[name, size, True] = prepare(name, size, top / f"{name}-{size}-on-workers", WORKERS)
    return wanted


def _lane(top: Path, wanted: Wanted, asked: argparse.Namespace, number: int) -> None:
    lane = Lane(top / f"lane-{number}", wanted, asked.seed * asked.lanes + number, asked.each)
    until, kills = time.monotonic() + asked.seconds, -(-asked.kills // asked.lanes)
    while lane.found.all < kills and time.monotonic() < until:
        lane.trial(kills - lane.found.all)
    (top / f"lane-{number}.json").write_text(json.dumps(asdict(lane.found)))


def main(words: list[str]) -> int:
    """Kill as often as is asked for; 0 where every job was right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=4, help="kills of one job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--few", action="store_true", help="prepare what is cheap to compile, in two sizes each")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no job after so long")
    asked = parser.parse_args(words)
    quickly()
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        wanted = prepared(top / "prepared", few=asked.few)
        # Objects that no collector looks at are not copied by every process.
        gc.collect()
        gc.freeze()
        gc.disable()
        lanes = [forked(lambda n=n: _lane(top, wanted, asked, n)) for n in range(asked.lanes)]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(lane, 0)[1]) for lane in lanes]
        for number in range(asked.lanes):
            if (path := top / f"lane-{number}.json").exists():
                found.add(json.loads(path.read_text()))
    sys.stdout.write(f"{found.told()}\n")
    return 1 if found.wrong or any(statuses) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
