"""Tests that every run has, whatever lines they run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tests.house.test_promises import PAGE, promises
from tests.quick.listed import function_of

PLANTED = re.compile("mutant|planted")
MOST = 4.0
"""Seconds of the parameters of one test that a promise names: dearer ones run for their lines, as all others do."""


def asked_for(seconds: Mapping[str, float]) -> set[str]:
    """Tests that the page of promises names, those of planted faults and mutants, and the examples in our texts.

    Args:
      seconds: of processor time that each test takes.
    """
    named = {(f"tests/{path}", name) for each in promises(PAGE.read_text("utf-8")).values() for path, name in each}
    found: set[str] = set()
    held: dict[str, list[str]] = defaultdict(list)
    for test in seconds:
        file, name = test.split("::")[0], function_of(test).split("::")[-1]
        if PLANTED.search(name) or not file.startswith("tests/"):
            found.add(test)
        elif (file, name) in named:
            held[function_of(test)].append(test)
    return found.union(*(_cheapest(tests, seconds) for tests in held.values()))


def _cheapest(tests: list[str], seconds: Mapping[str, float]) -> set[str]:
    """The first test, and others while their seconds last."""
    ordered, spent, kept = sorted(tests, key=lambda test: (seconds[test], test)), 0.0, set[str]()
    for test in ordered:
        spent += seconds[test]
        if kept and spent > MOST:
            break
        kept.add(test)
    return kept
