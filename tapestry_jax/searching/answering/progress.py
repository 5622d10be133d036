"""How a search goes, on one line of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tapestry_jax.planning.pricing.cost import duration
from tapestry_jax.searching.evaluated import Evaluated
from tapestry_jax.searching.problem import Problem

_EVERY = 0.2


class Progress:
    """Rewrites its line at most five times a second.

    Attributes:
      problem: what is searched; it knows what was tried.
      write: takes text.
    """

    def __init__(self, problem: Problem, write: Callable[[str], object]) -> None:
        self.problem, self.write = problem, write
        self._began = self._last = time.monotonic()
        self._best: float | None = None
        self._seen = 0

    def __call__(self) -> None:
        """Show how many candidates were planned, and the least price among them."""
        now = time.monotonic()
        if now - self._last < _EVERY:
            return
        self._last = now
        self.write(f"\r{self.line(now - self._began)}\x1b[K")

    def line(self, seconds: float) -> str:
        """What is shown after so many seconds."""
        found = list(self.problem.evaluated.values())
        priced = [each.seconds for each in found[self._seen :] if isinstance(each, Evaluated) and each.is_priced]
        self._seen = len(found)
        self._best = min([*priced, *([] if self._best is None else [self._best])], default=None)
        best = "nothing yet" if self._best is None else f"cheapest {duration(self._best)}"
        return f"search of {self.problem.graph.name}: {len(found)} candidates, {best}, {seconds:.0f} s"

    def close(self) -> None:
        """Leave the line to others."""
        self.write("\r\x1b[K")


def progress_of(problem: Problem, *, wanted: bool) -> Progress | None:
    """Where standard error is a terminal; None elsewhere, so that logs hold no half lines."""
    return Progress(problem, sys.stderr.write) if wanted and sys.stderr.isatty() else None
