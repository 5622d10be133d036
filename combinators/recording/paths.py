"""Where operations stand in a program: scopes inside each other, and names that no two operations share."""

from __future__ import annotations

import contextlib
from collections.abc import Generator


class Paths:
    """The paths of one recording: those that are taken, and the scopes that are open."""

    def __init__(self) -> None:
        self._scopes: list[str] = []
        self._counts: dict[str, int] = {}

    @property
    def depth(self) -> int:
        """How many scopes are open."""
        return len(self._scopes)

    @contextlib.contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Paths asked for inside lie below `name`; a second scope of the same name gets a number."""
        above = len("/".join([*self._scopes, ""]))
        self._scopes.append(self.unique(name)[above:])
        try:
            yield
        finally:
            self._scopes.pop()

    @contextlib.contextmanager
    def within(self, path: str) -> Generator[None]:
        """Paths asked for inside lie below `path`, whatever else does; an empty one says nothing."""
        if not path:
            yield
            return
        self._scopes.append(path)
        try:
            yield
        finally:
            self._scopes.pop()

    def unique(self, name: str) -> str:
        """A path for `name` in the open scopes that nothing else has; the second gets a number."""
        path = "/".join([*self._scopes, name])
        count = self._counts.get(path, 0)
        chosen = path if count == 0 else f"{path}_{count}"
        # Somebody may have called an operation `gelu_1`.
        while count and chosen in self._counts:
            count += 1
            chosen = f"{path}_{count}"
        self._counts[path] = count + 1
        self._counts.setdefault(chosen, 1)
        return chosen
