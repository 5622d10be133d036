"""How lines are counted.

A line counts where it holds code: imports count, blank lines, comments and docstrings do not. Files are formatted by
one formatter with one length of lines, and symbols are counted as well, so that long lines do not hide anything.
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Count:
    """What a program takes to write.

    Attributes:
      lines: that hold code.
      symbols: names, operators, numbers and texts in them.
    """

    lines: int
    symbols: int


def count(text: str) -> Count:
    """Count the lines and symbols of a file."""
    told = _docstrings(text)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _SILENT]
    tokens = [t for t in tokens if t.start[0] not in told]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return Count(len(lines), len(tokens))


def _docstrings(text: str) -> set[int]:
    found = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            said = node.body[0]
            assert said.end_lineno is not None
            found |= {*range(said.lineno, said.end_lineno + 1)}
    return found
