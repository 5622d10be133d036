"""Parts made of parts, applied without recursion: compositions may be as long and as deep as they like."""

from __future__ import annotations

import abc
from collections.abc import Generator
from typing import Any

from combinators.arrows.part import Part

Steps = Generator[tuple[Part, tuple[Any, ...]], Any, Any]
"""Yields a part and its operands, is sent the result of the part, and returns its own result."""

LONGEST = 120
"""Characters of a composition's name; of a longer one both ends are shown."""


class Combined(Part):
    """A part that says which of its parts to apply to what, and leaves applying to `apply`.

    Python allows about a thousand calls inside each other; a chain of a thousand arrows, each of which applied the one
    before it, would not run.
    """

    @abc.abstractmethod
    def steps(self, *values: Any) -> Steps:
        """The applications of parts that this one consists of."""

    def apply(self, *values: Any) -> Any:
        """Apply all parts, and theirs, one after the other."""
        running, result = [self.steps(*values)], None
        while running:
            try:
                part, operands = running[-1].send(result)
            except StopIteration as finished:
                running.pop()
                result = finished.value
                continue
            if isinstance(part, Combined):
                running.append(part.steps(*operands))
                result = None
            else:
                result = part.apply(*operands)
        return result


def joined_name(first: str, sign: str, second: str) -> str:
    """The name of a composition; the middle of long ones is left out, so that it costs the same at any length."""
    name = f"{first}{sign}{second}"
    if len(name) <= LONGEST:
        return name
    half = LONGEST // 2 - 2
    head, tail = name[:half].rsplit(" ", 1)[0], name[-half:].split(" ", 1)[-1]
    return f"{head} ... {tail}"
