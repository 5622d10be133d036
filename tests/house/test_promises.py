"""The page of promises names tests: every one is there, under this name, and runs without `--thorough`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "promises.md"
ROW = re.compile(r"^\| (?!promise \|)(.+?) \| (.+) \|$", re.MULTILINE)
CELL = re.compile(r"`([\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)")


def promises(text: str) -> dict[str, list[tuple[str, str]]]:
    """Of every promise the files, below `tests/`, and tests that hold it."""
    return {
        promise: [(path, name) for path, names in CELL.findall(cell) for name in re.findall(r"test_\w+", names)]
        for promise, cell in ROW.findall(text)
    }


@cache
def written_in(path: str) -> dict[str, bool]:
    """The tests of a file, and whether each runs always."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    whole = "pytest.mark.thorough"
    return {node.name: whole not in map(ast.unparse, node.decorator_list) for node in functions}


def lost(text: str) -> list[str]:
    """Promises that no test holds, and tests that are not there."""
    found = promises(text)
    without = [promise for promise, tests in found.items() if not tests]
    named = {each for tests in found.values() for each in tests}
    gone = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not (ROOT / "tests" / path).exists() or not written_in(path).get(name, False)
    ]
    return without + gone


def test_promises_are_held_by_tests_that_are_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert lost(text) == []
    # Every row of a table is read, and every test in it.
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise |")]
    assert len(promises(text)) == len(rows) > 50
    assert sum(map(len, promises(text).values())) == text.count("`test_")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("| held | `house/test_promises.py`: `test_a_lost_test_is_told` |", []),
        ("| renamed | `house/test_promises.py`: `test_a_lost_test_is_tol` |", ["::test_a_lost_test_is_tol"]),
        ("| moved | `house/test_promise.py`: `test_a_lost_test_is_told` |", ["test_promise.py::test_a_lost"]),
        ("| nobody | nobody |", ["nobody"]),
    ],
    ids=["held", "renamed", "moved", "nobody"],
)
def test_a_lost_test_is_told(row: str, told: list[str]) -> None:
    found = lost(row)
    assert len(found) == len(told) and all(part in text for part, text in zip(told, found, strict=True))
