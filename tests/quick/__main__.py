"""Choose the tests of `make test` anew, from what a run of all wrote down: `python -m tests.quick FOLDER`.

`make chosen` does both.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import numpy as np
from coverage import CoverageData

from tests.quick.asked import asked_for
from tests.quick.choosing import Lines, chosen
from tests.quick.listed import LIST
from tests.quick.recording import BETWEEN

SECONDS = 850.0
"""Of processor time, in tests; collecting them and lint beside them take some 350 more."""
CHEAP = 0.08
_STARTED = 0.05
"""Who spends so many seconds in other processes is not seen to run their lines."""


def main(arguments: list[str] | None = None) -> int:
    """Write `left_out.txt`; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the records that `tests.quick.recording` wrote")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all tests that run (%(default)s)")
    options = parser.parse_args(arguments)
    rows = [json.loads(line) for path in options.folder.glob("seconds-*") for line in path.open(encoding="utf-8")]
    lines = read_lines(options.folder)
    if not rows or not lines:
        parser.error(f"no records in {options.folder}: run pytest with -p tests.quick.recording, as `make chosen` does")
    seconds = {test: own + others for test, own, others in rows}
    always = {test for test, _, others in rows if others > _STARTED} | asked_for(seconds)
    kept = chosen(seconds, lines, options.seconds, always, CHEAP)
    LIST.write_text("\n".join([*sorted(seconds.keys() - kept), ""]), encoding="utf-8")
    spent = sum(seconds[test] for test in kept)
    print(f"{len(kept):,} of {len(seconds):,} tests, {spent:.0f} of {sum(seconds.values()):.0f} s: {told(lines, kept)}")
    return 0


def read_lines(folder: Path) -> Lines:
    """Of each test the lines that it ran, as numbers."""
    numbers: dict[tuple[str, int], int] = {}
    found: dict[str, list[int]] = defaultdict(list)
    for path in folder.glob("lines-*"):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                number = numbers.setdefault((file, line), len(numbers))
                for test in tests:
                    found[test].append(number)
    return {test: np.unique(each) for test, each in found.items() if test not in ("", BETWEEN)}


def told(lines: Lines, kept: Collection[str]) -> str:
    """How many lines are run by fewer tests than could be."""
    often, runs = _times(lines, lines), _times(lines, kept)
    short = (f"{np.count_nonzero(runs < np.minimum(often, times)):,} not {times} times" for times in (1, 2, 3, 5))
    return f"of {np.count_nonzero(often):,} lines {', '.join(short)} that could be"


def _times(lines: Lines, tests: Collection[str]) -> np.ndarray:
    count = 1 + max(int(each.max(initial=0)) for each in lines.values())
    found = np.zeros(count, np.int64)
    for test in tests:
        if test in lines:
            found[lines[test]] += 1
    return found


if __name__ == "__main__":
    raise SystemExit(main())
