"""No file stands in a circle of imports at run time, imports inside functions included."""

from __future__ import annotations

import grimp
import pytest

from tests.house.rooms import PACKAGES, Arrows, circles


@pytest.fixture(scope="module")
def graph() -> Arrows:
    """What each file imports when it runs: names for type checkers are left out."""
    files = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    return {file: frozenset(files.find_modules_directly_imported_by(file)) for file in files.modules}


def test_no_file_stands_in_a_circle(graph: Arrows) -> None:
    assert circles(graph) == [], "open the circle by a split in thought: what do both sides need?"


def test_circles_of_files_are_found(graph: Arrows) -> None:
    planted = {**graph, "combinators.graphs.key": frozenset({"combinators.graphs.graph"})}
    assert "combinators.graphs.key" in circles(planted)
