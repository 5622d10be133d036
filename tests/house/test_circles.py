"""No file stands in a circle of imports at run time, imports inside functions and on first use included."""

from __future__ import annotations

import ast
from pathlib import Path

import grimp
import pytest

from tests.house.rooms import PACKAGES, ROOT, Arrows, circles, is_room


def doors(text: str) -> frozenset[str]:
    """What a file loads on first use, by `combinators.lazy`: the modules of its table, which no statement imports."""
    if "lazily" not in text:
        return frozenset()
    tree = ast.parse(text)
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    if not any(isinstance(function, ast.Name) and function.id == "lazily" for function in calls):
        return frozenset()
    places = (value for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in node.values)
    named = (value.value for value in places if isinstance(value, ast.Constant) and isinstance(value.value, str))
    return frozenset(name.partition(":")[0] for name in named)


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if is_room(module) else path.with_suffix(".py")


@pytest.fixture(scope="module")
def graph() -> Arrows:
    """What each file imports when it runs, or when it is first asked: names for type checkers are left out."""
    files = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    return {
        file: frozenset(files.find_modules_directly_imported_by(file))
        | (doors(file_of(file).read_text(encoding="utf-8")) & files.modules)
        for file in files.modules
    }


def test_no_file_stands_in_a_circle(graph: Arrows) -> None:
    assert circles(graph) == [], "open the circle by a split in thought: what do both sides need?"


def test_circles_of_files_are_found(graph: Arrows) -> None:
    planted = {**graph, "combinators.graphs.key": frozenset({"combinators.graphs.graph"})}
    assert "combinators.graphs.key" in circles(planted)


def test_circles_through_what_is_loaded_on_first_use_are_found(graph: Arrows) -> None:
    # A plan is explained by a room that it loads when it is asked.
    assert "tapestry_jax.report.explain" in graph["tapestry_jax.on_request"]
    planted = {**graph, "tapestry_jax.report.explain": frozenset({"tapestry_jax.plan"})}
    assert "tapestry_jax.plan" in circles(planted)
