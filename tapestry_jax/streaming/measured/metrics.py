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

STAGES = ("read", "compute", "write")


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
    """

    name: str
    bytes: int
    calls: int
    busy: float
    waiting: float
    depth: int

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
    """

    seconds: float
    turns: int
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """The stage of a name."""
        return next(stage for stage in self.stages if stage.name == name)

    def json_lines(self) -> str:
        """One JSON object a line: the run, then each stage."""
        run: dict[str, Any] = {"seconds": self.seconds, "turns": self.turns}
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


class Meter:
    """Counts while a stream runs; readers and writers count from their own threads."""

    def __init__(self) -> None:
        self._counts = {name: _Count() for name in STAGES}
        self._lock, self._began, self.turns = threading.Lock(), time.perf_counter(), 0
        self.on_turn: Callable[[], None] | None = None

    def turned(self) -> None:
        """Count a turn, and tell who wants to know."""
        self.turns += 1
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
                count.busy += time.perf_counter() - count.since

    @contextmanager
    def waiting(self, name: str) -> Generator[None]:
        """Count the time inside as waiting for a stage."""
        before = time.perf_counter()
        yield
        with self._lock:
            self._counts[name].waiting += time.perf_counter() - before

    def metrics(self) -> Metrics:
        """What was counted until now."""
        with self._lock:
            stages = tuple(
                Stage(name, c.bytes, c.calls, c.busy, c.waiting, c.depth) for name, c in self._counts.items()
            )
            return Metrics(time.perf_counter() - self._began, self.turns, stages)
