"""An import inside of a function has its reason beside it: a comment above it or at its end."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for package in ("combinators", "tapestry_jax", "laws") for path in sorted((ROOT / package).rglob("*.py"))]


def unexplained(text: str) -> list[str]:
    """The imports inside of functions that say nothing of why; of several in a row the first speaks for all."""
    # Most files have none: parsing all of them takes seconds.
    if re.search(r"^[ \t]+(from \S+ )?import\s", text, re.MULTILINE) is None:
        return []
    lines = text.splitlines()
    return [
        f"{block[0].lineno}: {lines[block[0].lineno - 1].strip()}"
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for block in _blocks(function)
        if not _is_explained(lines, block)
    ]


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Imports that follow each other, in the function itself and in no function inside of it."""
    found = [node for node in _own(function) if isinstance(node, ast.Import | ast.ImportFrom)]
    blocks: list[list[ast.stmt]] = []
    for node in sorted(found, key=lambda node: node.lineno):
        if blocks and blocks[-1][-1].end_lineno == node.lineno - 1:
            blocks[-1].append(node)
        else:
            blocks.append([node])
    yield from blocks


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inner
            yield from _own(inner)


def _is_explained(lines: list[str], block: list[ast.stmt]) -> bool:
    first, last = block[0].lineno - 1, block[-1].end_lineno or block[-1].lineno
    above = lines[first - 1].strip() if first else ""
    ends = (line.partition("#")[2].strip() for line in lines[first:last])
    return above.startswith("#") or any(end and not end.startswith(("noqa", "pyright:", "type:")) for end in ends)


@pytest.mark.parametrize("package", ["combinators", "tapestry_jax", "laws"])
def test_late_imports_say_why(package: str):
    files = [path for path in FILES if path.relative_to(ROOT).parts[0] == package]
    assert len(files) > 40
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in unexplained(path.read_text())]
    assert found == [], "say why beside each, or import at the top"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f():\n    import a\n", 1),
        ("def f():\n    # It imports this module.\n    import a\n", 0),
        ("def f():\n    import a  # it imports this module\n", 0),
        ("def f():\n    import a  # noqa: PLC0415\n", 1),
        ("def f():\n    # One speaks for both.\n    import a\n    from b import c\n", 0),
        ("def f():\n    # Speaks for a.\n    import a\n\n    import b\n", 1),
        ("class A:\n    def f(self):\n        if x:\n            import a\n", 1),
        ("def f():\n    async def g():\n        import a\n", 1),
        ("import a\nif x:\n    import b\n", 0),
    ],
)
def test_late_imports_unexplained_are_found(text: str, count: int):
    assert len(unexplained(text)) == count
