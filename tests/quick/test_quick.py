"""What `make test` leaves out: every line is run, what is promised stays, and what is listed is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.house.test_promises import PAGE, promises
from tests.quick import listed
from tests.quick.asked import MOST, PLANTED, asked_for
from tests.quick.choosing import chosen
from tests.quick.listed import LIST, function_of, is_left_out

ROOT = Path(__file__).resolve().parents[2]
FEWEST = 1000
LINES = {
    "a::all": np.array([0, 1, 2, 3]),
    "a::half": np.array([0, 1]),
    "b::other": np.array([2, 3]),
    "b::alone": np.array([4]),
    "b::none": np.array([], np.int64),
}
SECONDS = {"a::all": 3.0, "a::half": 1.0, "b::other": 1.0, "b::alone": 5.0, "b::none": 2.0}


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0, {"a::half", "b::other", "b::alone"}),
        (9, {"a::half", "b::other", "b::alone"}),
        (10, {*SECONDS} - {"b::none"}),
    ],
)
def test_every_line_is_run_and_then_once_more_while_seconds_last(budget: float, expected: set[str]) -> None:
    assert chosen(SECONDS, LINES, budget) == expected


def test_what_always_runs_counts_for_its_lines() -> None:
    assert chosen(SECONDS, LINES, 0, always={"a::all"}) == {"a::all", "b::other", "b::alone"}
    assert "b::none" in chosen(SECONDS, LINES, 0, cheap=2.5)


def test_a_file_keeps_its_cheapest_and_what_nothing_is_known_of_runs() -> None:
    more = {**SECONDS, "c::dear": 9.0, "c::cheap": 1.0, "d::unknown": 9.0}
    lines = {**LINES, "c::dear": np.array([0]), "c::cheap": np.array([0])}
    kept = chosen(more, lines, 0)
    assert {"c::cheap", "d::unknown"} <= kept and "c::dear" not in kept


@pytest.mark.parametrize("seed", range(20))
def test_of_drawn_tests_no_line_is_lost(seed: int) -> None:
    draw = np.random.default_rng(seed)
    seconds = {f"{draw.integers(4)}::{at}": float(draw.exponential()) for at in range(30)}
    lines = {test: np.flatnonzero(draw.random(50) < draw.random() / 3) for test in seconds}
    kept = chosen(seconds, lines, float(draw.random() * 20))
    every, run = (set[int]().union(*(lines[test].tolist() for test in tests)) for tests in (seconds, kept))
    assert run == every


def test_what_is_listed_is_there_and_is_not_what_every_run_has() -> None:
    names = LIST.read_text(encoding="utf-8").splitlines()
    assert names == sorted(set(names)) and len(names) > FEWEST
    gone = [name for name in names if function_of(name).split("::", 1)[1] not in written_in(name.split("::")[0])]
    assert gone == [], "tests that were renamed or moved: rename them in tests/quick/left_out.txt, or `make chosen`"
    # Of a test with parameters that a promise names the dear ones may be listed.
    assert {name for name in asked_for(dict.fromkeys(names, 0.0)) if "[" not in name or PLANTED.search(name)} == set()


def test_of_a_test_that_a_promise_names_the_cheapest_parameters_run() -> None:
    file, name = next((file, name) for each in promises(PAGE.read_text("utf-8")).values() for file, name in each)
    dear, cheap, long = (f"tests/{file}::{name}[{at}]" for at in ("dear", "cheap", "long"))
    others = {"tests/a.py::test_planted[0]": 99.0, "README.md::README.md": 99.0, "tests/a.py::test_other": 0.0}
    found = asked_for({dear: MOST, cheap: 1.0, long: 2 * MOST, **others})
    assert found == {cheap, *list(others)[:2]}
    assert asked_for({long: 2 * MOST}) == {long}
    assert asked_for({dear: MOST - 1, cheap: 1.0}) == {dear, cheap}


def test_another_parameter_of_a_function_that_is_left_out_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "listed", lambda: frozenset({"a::f[0]", "a::g"}))
    assert [is_left_out(test) for test in ("a::f[0]", "a::f[1]", "a::g", "b::g")] == [True, False, True, False]


@cache
def written_in(path: str) -> set[str]:
    """The tests of a file, those of its classes behind the class."""
    found = ROOT / path
    body = ast.parse(found.read_text(encoding="utf-8")).body if found.exists() else []
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    inside = {
        f"{outer.name}::{node.name}" for outer in classes for node in outer.body if isinstance(node, ast.FunctionDef)
    }
    return inside | {node.name for node in body if isinstance(node, ast.FunctionDef)}
