"""The page: docs/lines.md, written from the programs."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks.lines.count import Count, count

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "lines.md"
PROGRAMS = (
    "llama",
    "resnet",
    "mamba",
    "moe",
    "dropout",
    "heat",
    "statistics",
    "kmeans",
    "decoding",
    "mixed_precision",
)

_TOP = """# Lines that a user writes

Ten programs that people begin with, each written twice: with this library, and in JAX, Flax and Optax alone. Both run
on the same mesh of eight devices and give the same numbers, which a test holds. `python -m benchmarks.lines` writes
this page.

A line counts where it holds code: imports count, blank lines, comments and docstrings do not. Both are formatted by
ruff with 120 columns; symbols are names, operators, numbers and texts. What both are given alike, numbers and
parameters, is [given.py](../benchmarks/lines/given.py).

| program | lines, ours | plain | symbols, ours | plain |
|---|---|---|---|---|
"""
_END = """
The plain ones leave to the compiler what it finds itself: what is sent, and where parameters lie that are whole. The
pipeline of the Llama block is written by hand; decoding calls one step a token from Python, and reads its prompts so.
The residual network and that with dropout are the same classes of Flax on both sides.
"""


def source(side: str, name: str) -> Path:
    """The file of a program; the side is `ours` or `plain`."""
    return ROOT / "benchmarks" / "lines" / side / f"{name}.py"


def counted(name: str) -> tuple[Count, Count]:
    """Ours, then the plain one."""
    ours, plain = (count(source(side, name).read_text(encoding="utf-8")) for side in ("ours", "plain"))
    return ours, plain


def page() -> str:
    """The text of the page."""
    rows, total = list[str](), [0, 0, 0, 0]
    for name in PROGRAMS:
        ours, plain = counted(name)
        told = ast.get_docstring(ast.parse(source("ours", name).read_text(encoding="utf-8")))
        links = [f"[{lines}](../benchmarks/lines/{side}/{name}.py)" for side, lines in _sides(ours, plain)]
        numbers = [ours.lines, plain.lines, ours.symbols, plain.symbols]
        rows.append(f"| {told} | {' | '.join(links)} | {ours.symbols} | {plain.symbols} |")
        total = [a + b for a, b in zip(total, numbers, strict=True)]
    rows.append(f"| all ten | {' | '.join(map(str, total))} |")
    return _TOP + "\n".join(rows) + "\n" + _END


def _sides(ours: Count, plain: Count) -> list[tuple[str, int]]:
    return [("ours", ours.lines), ("plain", plain.lines)]
