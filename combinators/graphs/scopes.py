"""Paths and the scopes that hold them: `decoder/0/mlp` is in `decoder`, and in `""`, which is the whole program."""

from __future__ import annotations


def is_inside(path: str, scope: str) -> bool:
    """Whether a path is a scope itself, or of something inside of it."""
    return not scope or path == scope or path.startswith(f"{scope}/")
