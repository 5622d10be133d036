"""What a run of a stream measures: bytes, time, waiting and depth of every stage."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.streaming.measured.given_back import give_back
from tapestry_jax.streaming.measured.resident import resident
from tapestry_jax.streaming.measured.spans import Spans

STAGES = ("read", "compute", "write")
_MOMENT = 0.01
"""Seconds between two looks at the memory of the process: a look takes some microseconds."""


@dataclass(frozen=True)
class Stage:
    """One stage of a run.

    Attributes:
      name: `read`, `compute` or `write`.
      bytes: that went through it.
      calls: boxes, or turns.
      busy: seconds in which at least one was under way.
      waiting: seconds that the loop stood still for it.
      depth: the most that were under way at once.
      spans: when at least one was, in seconds since the begin of the run; of many those with short gaps are joined.
    """

    name: str
    bytes: int
    calls: int
    busy: float
    waiting: float
    depth: int
    spans: tuple[tuple[float, float], ...] = ()

    @property
    def throughput(self) -> float:
        """Bytes a second, while something was under way; 0 where nothing was."""
        return self.bytes / self.busy if self.busy else 0.0


@dataclass(frozen=True)
class Metrics:
    """What a run has measured.

    Attributes:
      seconds: from its begin to its end.
      turns: how many ran.
      stages: reading, computing, writing.
      memory: the most bytes that the process had above its begin, looked at behind turns; None where the system does
        not say.
    """

    seconds: float
    turns: int
    stages: tuple[Stage, ...]
    memory: int | None = None

    def stage(self, name: str) -> Stage:
        """The stage of a name."""
        return next(stage for stage in self.stages if stage.name == name)

    def __str__(self) -> str:
        above = "" if self.memory is None else f", {self.memory:,} B of memory above its begin"
        lines = [f"{self.turns} turns in {self.seconds:.3g} s{above}"]
        lines += [
            f"{stage.name:<7}  {stage.bytes:,} B in {stage.calls} calls, busy {stage.busy:.3g} s, "
            f"waited for {stage.waiting:.3g} s, at most {stage.depth} at once"
            for stage in self.stages
        ]
        return "\n".join(lines)

    def json_lines(self) -> str:
        """One JSON object a line: the run, then each stage."""
        run: dict[str, Any] = {"seconds": self.seconds, "turns": self.turns, "memory": self.memory}
        stages = (
            {
                "stage": stage.name,
                "bytes": stage.bytes,
                "calls": stage.calls,
                "busy": stage.busy,
                "waiting": stage.waiting,
                "depth": stage.depth,
                "throughput": stage.throughput,
            }
            for stage in self.stages
        )
        return "\n".join(map(json.dumps, (run, *stages)))

    def prometheus(self) -> str:
        """The same in the text format of Prometheus, for a file that its node exporter collects, or a page of yours."""
        lines = [*_family("run_seconds", "gauge", "Since the run began, until its end.", {"": self.seconds})]
        lines += _family("turns_total", "counter", "Turns that ran.", {"": self.turns})
        if self.memory is not None:
            told = "The most that the process had above its begin, looked at behind turns."
            lines += _family("memory_bytes", "gauge", told, {"": self.memory})
        for name, kind, told, field in _FAMILIES:
            values = {f'{{stage="{stage.name}"}}': getattr(stage, field) for stage in self.stages}
            lines += _family(name, kind, told, values)
        return "\n".join(lines) + "\n"


_FAMILIES = (
    ("bytes_total", "counter", "Bytes that went through a stage.", "bytes"),
    ("calls_total", "counter", "Boxes, or turns.", "calls"),
    ("busy_seconds_total", "counter", "Seconds in which at least one was under way.", "busy"),
    ("waiting_seconds_total", "counter", "Seconds that the loop stood still for a stage.", "waiting"),
    ("depth_most", "gauge", "The most that were under way at once.", "depth"),
)


def _family(name: str, kind: str, told: str, values: Mapping[str, float]) -> list[str]:
    full = f"tapestry_stream_{name}"
    return [f"# HELP {full} {told}", f"# TYPE {full} {kind}", *(f"{full}{label} {n}" for label, n in values.items())]


class _Count:
    """The numbers of one stage while they grow."""

    def __init__(self) -> None:
        self.bytes = self.calls = self.depth = self.now = 0
        self.busy = self.waiting = self.since = 0.0
        self.spans = Spans()


class Meter:
    """Counts while a stream runs; readers and writers count from their own threads.

    Args:
      room: bytes above the begin that are in use at most; what is there beyond was freed, and goes back to the system.
    """

    def __init__(self, room: int | None = None) -> None:
        self._counts = {name: _Count() for name in STAGES}
        self._lock, self._began, self.turns = threading.Lock(), time.perf_counter(), 0
        self._ended: float | None = None
        self._memory = _Memory(self._began, room)
        self.on_turn: Callable[[], None] | None = None

    def turned(self) -> None:
        """Count a turn, and tell who wants to know."""
        self.turns += 1
        self._memory.look(time.perf_counter())
        if self.on_turn is not None:
            self.on_turn()

    def under_way(self, name: str, futures: Iterable[Future[None]], amount: int) -> None:
        """Count what is read or written until its futures are done."""
        self._counts[name].bytes += amount
        for future in futures:
            self.begin(name)
            future.add_done_callback(lambda _: self.end(name))

    def begin(self, name: str, amount: int = 0) -> None:
        """One more is under way, of so many bytes."""
        with self._lock:
            count = self._counts[name]
            count.bytes += amount
            count.calls += 1
            count.now += 1
            count.depth = max(count.depth, count.now)
            if count.now == 1:
                count.since = time.perf_counter()

    def end(self, name: str) -> None:
        """One is done."""
        with self._lock:
            count = self._counts[name]
            count.now -= 1
            if not count.now:
                now = time.perf_counter()
                count.busy += now - count.since
                count.spans.add(count.since, now)

    @contextmanager
    def waiting(self, name: str) -> Generator[None]:
        """Count the time inside as waiting for a stage."""
        before = time.perf_counter()
        yield
        with self._lock:
            self._counts[name].waiting += time.perf_counter() - before

    def throughput(self, name: str) -> float:
        """Bytes a second of a stage until now, of what is done; 0 where nothing is."""
        count = self._counts[name]
        return count.bytes / count.busy if count.busy else 0.0

    def ended(self) -> None:
        """The run is over: its seconds stand still."""
        self._ended = time.perf_counter()
        self._memory.look(self._ended, always=True)

    def metrics(self) -> Metrics:
        """What was counted until now."""
        with self._lock:
            stages = tuple(
                Stage(name, c.bytes, c.calls, c.busy, c.waiting, c.depth, c.spans.since(self._began))
                for name, c in self._counts.items()
            )
            until = time.perf_counter() if self._ended is None else self._ended
            return Metrics(until - self._began, self.turns, stages, self._memory.most)


class _Memory:
    """The memory of the process above what it had first, looked at from time to time."""

    def __init__(self, now: float, room: int | None) -> None:
        self._first, self._looked, self._room, self.most = resident(), now, room, None
        if self._first is not None:
            self.most = 0

    def look(self, now: float, always: bool = False) -> None:
        """Look, unless that was done a moment ago and nothing is held against it."""
        is_due = always or self._room is not None or now - self._looked >= _MOMENT
        if self._first is None or not is_due:
            return
        self._looked = now
        above = (resident() or 0) - self._first
        self.most = max(self.most or 0, above)
        if self._room is not None and above > self._room:
            give_back()
