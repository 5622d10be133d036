"""Paths and the scopes that hold them: `decoder/0/mlp` is in `decoder`, and in `""`, which is the whole program."""

from __future__ import annotations

from collections.abc import Sequence


def is_inside(path: str, scope: str) -> bool:
    """Whether a path is a scope itself, or of something inside of it."""
    return not scope or path == scope or path.startswith(f"{scope}/")


def above(path: str) -> Sequence[str]:
    """The scopes around a path, the outermost first; without the whole program, and without the path itself."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]
