"""Which tests a run of `make test` can do without: those that run no line of ours that enough others do not run.

A test is known by the seconds that it takes and by the lines of ours that run meanwhile. Cheap tests all stay. Of the
others those are taken first that run the most lines for their seconds that no test runs yet; when every line is run
that any test runs, those that no two tests run, and so on, until the seconds are used up.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

Lines = Mapping[str, np.ndarray]
"""The lines that each test runs, as numbers."""


def chosen(
    seconds: Mapping[str, float], lines: Lines, budget: float, always: Collection[str] = (), cheap: float = 0.0
) -> set[str]:
    """The tests to run: those of which it is said, then the cheapest of every file, then those that the lines ask for.

    Args:
      seconds: of processor time that each test takes.
      lines: that each test runs; of a test that is not there nothing is known, and it runs.
      budget: seconds of all that run; every line is run even so.
      always: tests that run in any case.
      cheap: tests that take less run in any case.
    """
    kept = {test for test, spent in seconds.items() if spent < cheap or test not in lines or test in always}
    kept |= _one_of_each_file(seconds, kept)
    count = 1 + max((int(found.max(initial=0)) for found in lines.values()), default=0)
    often = _counted(count, (found for test, found in lines.items() if test in seconds))
    runs = _counted(count, (lines[test] for test in kept if test in lines))
    spent, left = sum(seconds[test] for test in kept), {test for test in seconds if test not in kept}
    times = 0
    while left and (spent < budget or times == 0):
        times += 1
        for test in _greedy(seconds, lines, left, runs, np.minimum(often, times)):
            if times > 1 and spent + seconds[test] > budget:
                return kept
            kept.add(test)
            left.discard(test)
            runs[lines[test]] += 1
            spent += seconds[test]
    return kept


def _one_of_each_file(seconds: Mapping[str, float], kept: Collection[str]) -> set[str]:
    """The cheapest test of each file of which none is kept."""
    met = {_file(test) for test in kept}
    cheapest: dict[str, str] = {}
    for test in sorted(seconds, key=lambda test: (seconds[test], test)):
        if _file(test) not in met:
            cheapest.setdefault(_file(test), test)
    return set(cheapest.values())


def _file(test: str) -> str:
    return test.split("::")[0]


def _counted(count: int, each: Iterable[np.ndarray]) -> np.ndarray:
    """How often each line is run."""
    found = np.zeros(count, np.int64)
    for lines in each:
        found[lines] += 1
    return found


def _greedy(
    seconds: Mapping[str, float], lines: Lines, left: Collection[str], runs: np.ndarray, wanted: np.ndarray
) -> Iterator[str]:
    """Tests until every line is run as often as wanted; whoever takes one counts its lines among `runs`."""

    def worth(test: str) -> float:
        return float(np.count_nonzero(runs[lines[test]] < wanted[lines[test]])) / max(seconds[test], 1e-6)

    # What a test is worth only falls while others are taken, so that the first whose worth still stands is the best.
    queue = [(-worth(test), test) for test in left]
    heapq.heapify(queue)
    while queue:
        before, test = heapq.heappop(queue)
        now = worth(test)
        if not now:
            continue
        if now < -before:
            heapq.heappush(queue, (-now, test))
            continue
        yield test
