"""One line of a table of measurements, and how tables are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tapestry_jax.report.table import aligned


@dataclass(frozen=True)
class Row:
    """A measurement beside its peer.

    Attributes:
      case: what was measured.
      ours: the measurement of the library.
      peer: what plain JAX takes for the same.
      unit: of both.
      target: the largest value that `compared` may have; None where nothing is promised.
      compare: `ratio` of ours to peer, `difference`, or `value` of ours alone.
      compared: what is held against the target, in the unit where it is no ratio; by default made from the others.
    """

    case: str
    ours: float
    peer: float
    unit: str
    target: float | None
    compare: str = "ratio"
    compared: float | None = None

    @property
    def result(self) -> float:
        """What is held against the target."""
        if self.compared is not None:
            return self.compared
        if self.compare == "value":
            return self.ours
        if self.compare == "difference":
            return self.ours - self.peer
        return self.ours / self.peer if self.peer else (1.0 if not self.ours else float("inf"))

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.result <= self.target

    def as_dict(self) -> dict[str, Any]:
        """All fields with the verdict, as JSON takes them."""
        return asdict(self) | {"result": self.result, "holds": self.holds}


_HEAD = ("case", "measured", "peer", "result", "target", "holds")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table with aligned columns."""
    head, *cells = aligned([_HEAD, *(_cells(row) for row in rows)])
    rule = "|" + "|".join("-" * (len(cell) + 2) for cell in head) + "|"
    return "\n".join([_line(head), rule, *map(_line, cells)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: Row) -> tuple[str, ...]:
    unit = "" if row.compare == "ratio" else f" {row.unit}"
    sign = "+" if row.compare == "difference" else ""
    result = f"{row.result:{sign}.3f}" if row.compare == "ratio" else f"{row.result:{sign}.3g}{unit}"
    target = "" if row.target is None else f"<= {row.target:g}{unit}"
    verdict = {None: "", True: "yes", False: "NO"}[row.holds]
    return row.case, _number(row.ours, row.unit), _number(row.peer, row.unit), result, target, verdict


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if unit in ("B", "flop") else f"{value:,.3g} {unit}"
