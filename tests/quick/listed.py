"""The tests that `make test` leaves to `make full`: `left_out.txt`, which `make chosen` writes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("left_out.txt")


def function_of(test: str) -> str:
    """A test without its parameters."""
    return test.split("[")[0]


def is_left_out(test: str) -> bool:
    """Whether a test is listed, with these parameters: others of its function run."""
    return test in listed()


@cache
def listed() -> frozenset[str]:
    """The lines of the list, a test each."""
    return frozenset(LIST.read_text(encoding="utf-8").splitlines())
