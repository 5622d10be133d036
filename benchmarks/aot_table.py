"""What the compilers say as Markdown: a table for each machine, ours beside automatic JAX and beside by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

Answer = Mapping[str, Any]
_HEAD = (
    ("case", "cycles, ours", "automatic", "ratio", "by hand", "ratio")
    + ("temporaries, ours", "automatic", "by hand")
    + ("sent, ours", "automatic", "by hand")
    + ("behind compute",)
)
_PACKAGES = ("jax", "libtpu", "jax-cuda12-pjrt")


def tables(answers: Sequence[Answer], limit: int) -> str:
    """One table for each machine, and a line for each program that gave no answer."""
    parts = [f"{versions()}; at most {limit} s of processor time for each program."]
    for machine in dict.fromkeys(each["machine"] for each in answers):
        own = [each for each in answers if each["machine"] == machine]
        lines = [f"**{machine}**", "", _line(_HEAD), "|---" * len(_HEAD) + "|"]
        rows = dict.fromkeys(each["row"] for each in own)
        lines += [_line(_cells(row, {each["program"]: each for each in own if each["row"] == row})) for row in rows]
        lines += [f"\n- {each['row']}, {each['program']}: {each['why']}." for each in own if "why" in each]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def versions() -> str:
    """The compilers that are installed."""
    found: list[str] = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def _cells(row: str, programs: Mapping[str, Answer]) -> tuple[str, ...]:
    ours, automatic, by_hand = (programs.get(label, {}) for label in ("ours", "automatic", "by hand"))
    cycles = (_number(ours, "cycles"), *(_beside(ours, peer) for peer in (automatic, by_hand)))
    flat = (cycles[0], *cycles[1], *cycles[2])
    others = (_number(each, what) for what in ("temporaries", "sent") for each in (ours, automatic, by_hand))
    hidden = f"{ours['hidden']:.0%}" if "hidden" in ours and ours.get("sent") else ""
    return (ours.get("title", row), *flat, *others, hidden)


def _beside(ours: Answer, peer: Answer) -> tuple[str, str]:
    both = ours.get("cycles"), peer.get("cycles")
    return _number(peer, "cycles"), f"{both[0] / both[1]:.3f}" if both[0] and both[1] else ""


def _number(answer: Answer, what: str) -> str:
    value = answer.get(what)
    if value is None:
        return ""
    # Gathers and scatters have no estimated cycles: how many ran is said beside the sum.
    without = f" (+{answer['lookups']})" if what == "cycles" and answer.get("lookups") else ""
    return f"{value:,}{without}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
