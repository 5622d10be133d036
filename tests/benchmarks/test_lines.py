"""Ten programs, ours and plain: the same numbers, no more lines, and a page that says how many."""

from __future__ import annotations

import importlib
import re
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.lines import page
from benchmarks.lines.count import Count, count

QUICK = {"heat", "kmeans"}
"""Those that compile little; the others are compared in thorough runs."""


def test_the_page_says_what_is_counted() -> None:
    assert page.FILE.read_text(encoding="utf-8") == page.page(), "write it: python -m benchmarks.lines"


def test_every_program_is_written_twice() -> None:
    for side in ("ours", "plain"):
        files = {path.stem for path in page.source(side, "").parent.glob("*.py")}
        assert files == {"__init__", *page.PROGRAMS}


@pytest.mark.parametrize("name", page.PROGRAMS)
def test_ours_takes_no_more_lines(name: str) -> None:
    ours, plain = page.counted(name)
    assert ours.lines <= plain.lines and ours.symbols <= plain.symbols


def test_plain_programs_know_nothing_of_ours() -> None:
    for name in page.PROGRAMS:
        text = page.source("plain", name).read_text(encoding="utf-8")
        assert re.search(r"\b(tapestry_jax|combinators|tp)\b", text) is None


def test_lines_are_those_that_hold_code() -> None:
    text = '''"""Told."""

import os  # why

def f(x):
    """Told
    twice."""
    # why
    return (
        x
    )
'''
    assert count(text) == Count(lines=5, symbols=2 + 6 + 4)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.thorough) for n in page.PROGRAMS]
)
def test_both_give_the_same_numbers(name: str) -> None:
    def run(side: str) -> list[Any]:
        return jax.tree.leaves(importlib.import_module(f"benchmarks.lines.{side}.{name}").run())

    ours, plain = run("ours"), run("plain")
    assert len(ours) == len(plain)
    assert len({float(np.sum(leaf)) for leaf in plain}) == len(plain)
    for found, expected in zip(ours, plain, strict=True):
        found, expected = np.asarray(found), np.asarray(expected)
        assert found.shape == expected.shape
        # What is computed in bfloat16 is rounded after other sums.
        tolerance = 5e-3 if name == "mixed_precision" else 1e-4
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-5)
