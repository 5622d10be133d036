"""What the code of a document names of ours, looked up without running it.

Told are names that are not there, and calls that do not fit what is called. Looked at are names that the document
imports, and what it reads off them: `tp.nnx.Linear(4, 4, rngs=rngs)`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

OURS = ("combinators", "laws", "tapestry_jax")


def misnamed(source: str) -> list[str]:
    """Lines of the code, each with the name that is not there or the argument that is not taken."""
    tree = ast.parse(source)
    roots = dict(_imported(tree))
    found: list[str] = []
    for node in ast.walk(tree):
        try:
            if isinstance(node, ast.Attribute):
                _value(node, roots)
            elif isinstance(node, ast.Call):
                _bind(node, roots)
        except _UnknownError:
            pass
        except (AttributeError, TypeError) as error:
            found.append(f"{node.lineno}: {ast.unparse(node)}: {error}")
    return found


class _UnknownError(Exception):
    """Of a value that running the document makes."""


def _imported(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
        if any(name.partition(".")[0] in OURS for name in (*names, module or "")):
            made: dict[str, Any] = {}
            exec(compile(ast.Module([node], []), "<imports>", "exec"), made)
            yield from ((name, value) for name, value in made.items() if name != "__builtins__")


def _value(node: ast.expr, roots: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name) and node.id in roots:
        return roots[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, roots), node.attr)
    raise _UnknownError


def _bind(node: ast.Call, roots: dict[str, Any]) -> None:
    function = _value(node.func, roots)
    if any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords):
        raise _UnknownError
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise _UnknownError from error
    signature.bind(*node.args, **{str(each.arg): each.value for each in node.keywords})
