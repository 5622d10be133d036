"""Circles of files at run time, imports inside functions included: those that are left, each with a reason."""

from __future__ import annotations

import ast

import grimp
import pytest

from tests.house.rooms import PACKAGES, ROOT, Arrows, circles, reachable

LEFT = {
    "combinators.arrows.arrow": "an operator of an arrow makes another kind of arrow, which is an arrow",
    "combinators.index_space.signature": "the parser makes signatures, and `Signature.parse` calls it",
    "combinators.merging.monoid": "`&` of monoids makes a product, which is a monoid",
}
"""The one file of each circle that imports late, and why it needs what imports it."""


def run_time_imports() -> Arrows:
    """What each file imports when it runs: names for type checkers are left out."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    return {file: frozenset(graph.find_modules_directly_imported_by(file)) for file in graph.modules}


def late(file: str) -> frozenset[str]:
    """The modules of ours that functions of a file import, and the file itself does not."""
    tree = ast.parse((ROOT / f"{file.replace('.', '/')}.py").read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in top and node.module is not None:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return frozenset(found)


@pytest.fixture(scope="module")
def graph() -> Arrows:
    return run_time_imports()


def test_no_file_stands_in_a_circle_but_through_those_that_are_named(graph: Arrows) -> None:
    without = {file: others for file, others in graph.items() if file not in LEFT}
    straight = {file: others & without.keys() for file, others in without.items()}
    assert circles(straight) == [], "open the circle by a split in thought, or say here why it stands"


@pytest.mark.parametrize("file", LEFT)
def test_a_circle_that_is_left_closes_by_late_imports_alone(graph: Arrows, file: str) -> None:
    assert file in reachable(graph, file), "it is open: its line can go"
    assert file not in reachable({**graph, file: graph[file] - late(file)}, file)


def test_circles_of_files_are_found(graph: Arrows) -> None:
    planted = {**graph, "combinators.graphs.key": frozenset({"combinators.graphs.graph"})}
    assert "combinators.graphs.key" in circles(planted)
