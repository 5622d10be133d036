"""When a stage of a run was busy: spans of time, of which few are kept however long it takes."""

from __future__ import annotations

MOST = 2048
"""So many spans of a stage are kept at most: what a page can draw."""


class Spans:
    """Spans of seconds, in order. Where there are too many, neighbours become one: those with the shortest gaps."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    def add(self, start: float, stop: float) -> None:
        """One more span, behind all others."""
        self._spans.append((start, stop))
        if len(self._spans) > MOST:
            self._spans = halved(self._spans)

    def since(self, begin: float) -> tuple[tuple[float, float], ...]:
        """All of them, in seconds after `begin`."""
        return tuple((start - begin, stop - begin) for start, stop in self._spans)


def halved(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Half as many spans: those are joined between which least time passed."""
    gaps = sorted(range(1, len(spans)), key=lambda n: (spans[n][0] - spans[n - 1][1], n))
    joined, found = {*gaps[: len(spans) // 2]}, [spans[0]]
    for number, (start, stop) in enumerate(spans[1:], 1):
        if number in joined:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
