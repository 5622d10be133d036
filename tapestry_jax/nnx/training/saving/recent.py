"""What the steps found since the last row of a run's history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapestry_jax.nnx.training.metrics import NOTHING, Metrics


class Recent:
    """Metrics of steps that no row of the history tells yet; a checkpoint holds them, so that the next row is the same.

    To read what a step found waits for it, so steps are read when a row or a checkpoint is written.
    """

    def __init__(self, found: Metrics = NOTHING, steps: int = 0) -> None:
        self._found, self._steps, self._unread = found, steps, list[tuple[int, Any, int]]()
        self.total = NOTHING
        """Of all steps that were read since it was set."""

    @staticmethod
    def of(told: Mapping[str, Any] | None) -> Recent:
        """What a checkpoint tells; nothing where it is of a version that told none."""
        return Recent() if told is None else Recent(Metrics(told["totals"], told["counts"]), told["steps"])

    @property
    def steps(self) -> int:
        """Of how many steps it is."""
        return self._steps + len(self._unread)

    def add(self, step: int, found: Mapping[str, Any], rows: int) -> None:
        """What a step found, on the devices."""
        self._unread.append((step, found, rows))

    def forget(self, last: int) -> None:
        """Leave out steps behind `last`, which were taken back."""
        self._unread = [each for each in self._unread if each[0] <= last]

    def read(self) -> Metrics:
        """All of it; the steps are known to have given numbers."""
        for _, found, rows in self._unread:
            one = Metrics.of(found, rows)
            self._found, self.total = self._found + one, self.total + one
        self._steps, self._unread = self.steps, []
        return self._found

    def told(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        found = self.read()
        return {"steps": self._steps, "totals": dict(found.totals), "counts": dict(found.counts)}

    def clear(self) -> None:
        """Begin anew behind a row."""
        self._found, self._steps, self._unread = NOTHING, 0, []


def is_told(found: Any) -> bool:
    """Whether what a file holds is what `Recent.told` gives."""
    parts: dict[str, Any] = found if isinstance(found, dict) else {}
    totals, counts = parts.get("totals"), parts.get("counts")
    if not (isinstance(totals, dict) and isinstance(counts, dict) and totals.keys() == counts.keys()):
        return False
    numbers = [*totals.values(), *counts.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return type(parts.get("steps")) is int and all(type(number) in (int, float) for number in numbers)
