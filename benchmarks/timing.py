"""Timing two functions against each other on a machine whose speed changes while they run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax


@dataclass(frozen=True)
class Paired:
    """Times of two functions that ran in turns.

    Attributes:
      ours: median seconds of one call of the first.
      peer: median seconds of one call of the second.
      ratio: median over the turns of first / second; a slow moment of the machine slows both halves of a turn.
      difference: median over the turns of first - second, in seconds.
    """

    ours: float
    peer: float
    ratio: float
    difference: float


def paired(
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    rounds: int,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Paired:
    """Run two functions in turns and compare them turn by turn.

    Args:
      ours: the first function; its result is waited for.
      peer: the second function.
      rounds: how many turns each has; who begins changes from turn to turn.
      calls: calls in one turn, for functions too short for the clock.
      clock: what is read before and after; `time.process_time` leaves out what other processes take.

    Returns:
      Medians of one call.
    """
    for function in (ours, peer):
        _seconds(function, calls, clock)
    first: list[float] = []
    second: list[float] = []
    for turn in range(rounds):
        order = (ours, peer) if turn % 2 == 0 else (peer, ours)
        times = {function: _seconds(function, calls, clock) for function in order}
        first.append(times[ours])
        second.append(times[peer])
    turns = list(zip(first, second, strict=True))
    return Paired(
        statistics.median(first),
        statistics.median(second),
        statistics.median(a / b for a, b in turns),
        statistics.median(a - b for a, b in turns),
    )


@dataclass(frozen=True)
class Once:
    """Seconds that one run of Python code took.

    Attributes:
      wall: by the clock on the wall.
      processor: of this thread alone, which leaves out what other processes take from a shared machine.
    """

    wall: float
    processor: float


def once(function: Callable[[], Any]) -> Once:
    """Time one run of a function that works in this thread."""
    begun, used = time.perf_counter(), time.thread_time()
    function()
    processor = time.thread_time() - used
    return Once(time.perf_counter() - begun, processor)


def _seconds(function: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    begun = clock()
    result: Any = None
    for _ in range(calls):
        result = function()
    jax.block_until_ready(result)
    return (clock() - begun) / calls
