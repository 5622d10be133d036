"""From the names of JAX's scopes to the paths of operations."""

from __future__ import annotations

import re

from tapestry_jax.hlo.cycles import path_of

_WRAPPED = re.compile(r"\b(?:jvp|transpose|vmap|jit|rematted_computation|checkpoint)\(([^()]*)\)")
_PLACES = frozenset(
    ("", "shard_map", "while", "body", "cond", "checkpoint", "rematted_computation", "closed_call", "remat", "scan")
)


class Scopes:
    """The names of JAX's scopes as they stand inside of a program that is called."""

    def __init__(self) -> None:
        self._inside: dict[tuple[str, str], str] = {}

    def inside(self, path: str, scopes: str) -> str:
        """The scopes of an equation of a program that was called: text that is written once is looked up sooner."""
        key = path, scopes
        found = self._inside.get(key)
        if found is None:
            found = self._inside[key] = f"{path}/{scopes}" if path and scopes else path or scopes
        return found

    def of(self, scopes: str) -> tuple[str, bool]:
        """The scopes, from which whoever calls the program finds the path."""
        return scopes, False


class Paths(Scopes):
    """The paths of operations, found in the names of JAX's scopes."""

    def __init__(self, known: frozenset[str]) -> None:
        super().__init__()
        self._known = known
        self._found: dict[str, tuple[str, bool]] = {}
        self._plain: dict[str, str] = {}

    def inside(self, path: str, scopes: str) -> str:
        """The same; each scope is whole, so what is plain of both is plain of them together."""
        found = super().inside(path, scopes)
        if found not in self._plain:
            self._plain[found] = "/".join(plain for plain in (self._plainly(path), self._plainly(scopes)) if plain)
        return found

    def of(self, scopes: str) -> tuple[str, bool]:
        """The path, and whether the scopes are those of a derivative."""
        if scopes not in self._found:
            self._found[scopes] = self._read(scopes), "transpose(" in scopes
        return self._found[scopes]

    def _read(self, scopes: str) -> str:
        plain = self._plainly(scopes)
        # What is no operation's own belongs to the loop around it.
        found = path_of(plain, self._known)
        is_told = found in plain and found in self._known
        return found if is_told or any(path in plain for path in self._known) else plain

    def _plainly(self, scopes: str) -> str:
        """The names that users gave, and operations."""
        if scopes not in self._plain:
            plain = scopes
            while (shorter := _WRAPPED.sub(r"\1", plain)) != plain:
                plain = shorter
            self._plain[scopes] = "/".join(part for part in plain.split("/") if part not in _PLACES)
        return self._plain[scopes]
