"""The loop of the supervisor: who has ended, who is stuck, what follows."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType

from combinators.frozen import dataclass
from tapestry_jax.launching.group import Group, Rank
from tapestry_jax.launching.launch import STUCK, Launch
from tapestry_jax.outputs import tell

_AFTER_A_DEATH = 2.0  # seconds at most that the others have: they wait for one that is gone
_TO_SAY_WHERE = 3.0  # seconds at most that a stuck rank has to print where it stands


@dataclass(frozen=True)
class _Ended:
    """How an attempt has ended: its exit status, why in words, and whether another may follow."""

    status: int
    why: str
    is_final: bool


class _Stop:
    """The signals that the supervisor was sent."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.numbers.append(number)


def supervise(launch: Launch) -> int:
    """Start the group, watch it, and start all of it again when a rank dies or is stuck.

    Args:
      launch: what was asked for.

    Returns:
      The exit status: 0 where all ranks ended well; else, once no restart is left, that of the rank that failed first,
      128 and the number of its signal where one ended it, `STUCK` where it was stuck; 130 after Ctrl-C and 143 after
      SIGTERM.

    Raises:
      LaunchError: when a process cannot be started.
    """
    with _heard() as stop, tempfile.TemporaryDirectory(prefix="tapestry-") as folder:
        for attempt in range(launch.restarts + 1):
            with Group(launch, attempt, Path(folder)) as group:
                ended = _watched(launch, group, stop)
            if ended.why:
                left = launch.restarts - attempt
                follows = "" if ended.is_final else f"; started again, {left - 1} more times at most" if left else ""
                _tell(f"{ended.why}{follows}")
            if ended.is_final or attempt == launch.restarts:
                return ended.status
        raise AssertionError("the last attempt returns")


def _watched(launch: Launch, group: Group, stop: _Stop) -> _Ended:
    """Pass on output until the group ends, or has to."""
    while True:
        group.turn()
        if stop.numbers:
            return _stopped(launch, group, stop)
        if dead := group.failed():
            return _after_a_death(launch, group, dead[0])
        running = group.running()
        if not running:
            return _Ended(0, "", is_final=True)
        if launch.stuck is not None:
            stuck = [rank for rank in running if rank.silent() > launch.stuck]
            if stuck:
                return _unstuck(launch, group, stuck[0])


def _after_a_death(launch: Launch, group: Group, dead: Rank) -> _Ended:
    code = dead.process.poll() or 0
    name = _signal(-code) if code < 0 else f"status {code}"
    others = len(group.running())
    if others:
        _tell(f"rank {dead.number} ended with {name}; {others} others are ended")
    group.signal(signal.SIGTERM)
    group.wait(min(launch.grace, _AFTER_A_DEATH))
    return _Ended(128 - code if code < 0 else code, f"rank {dead.number} ended with {name}", is_final=False)


def _signal(number: int) -> str:
    """The name of a signal; those for real time have none."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


def _unstuck(launch: Launch, group: Group, stuck: Rank) -> _Ended:
    why = f"rank {stuck.number} gave no sign of life for {launch.stuck:g} seconds"
    _tell(f"{why}; it is asked where it stands")
    stuck.process.send_signal(signal.SIGABRT)
    until = time.monotonic() + min(launch.grace, _TO_SAY_WHERE)
    while stuck.process.poll() is None and time.monotonic() < until:
        group.turn()
    return _Ended(STUCK, why, is_final=False)


def _stopped(launch: Launch, group: Group, stop: _Stop) -> _Ended:
    """Hand a signal on, wait until all have ended, and end them when they do not, or at a second signal."""
    number = stop.numbers[0]
    group.signal(number)
    until = time.monotonic() + launch.grace
    while group.running() and len(stop.numbers) == 1 and time.monotonic() < until:
        group.turn()
    killed = len(group.running())
    more = f"; {killed} did not end and are killed" if killed else ""
    return _Ended(128 + number, f"{signal.Signals(number).name}{more}", is_final=True)


@contextlib.contextmanager
def _heard() -> Generator[_Stop]:
    """Hear SIGINT, SIGTERM and SIGHUP, but for what whoever started this process ignores, as `nohup` does."""
    stop = _Stop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: list[tuple[int, Callable[..., object] | int | None]] = [(each, signal.signal(each, stop)) for each in heard]
    try:
        yield stop
    finally:
        for each, handler in before:
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)


def _tell(text: str) -> None:
    tell(f"tapestry launch: {text}")
