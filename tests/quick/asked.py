"""Tests that every run has, whatever lines they run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.house.test_promises import PAGE, promises
from tests.quick.listed import function_of

_PLANTED = re.compile("mutant|planted")


def asked_for(tests: Iterable[str]) -> set[str]:
    """Tests that the page of promises names, those of planted faults and mutants, and the examples in our texts."""
    named = {(f"tests/{path}", name) for each in promises(PAGE.read_text("utf-8")).values() for path, name in each}
    found: set[str] = set()
    for test in tests:
        file, name = test.split("::")[0], function_of(test).split("::")[-1]
        if (file, name) in named or _PLANTED.search(name) or not file.startswith("tests/"):
            found.add(test)
    return found
