"""What the compilers say as Markdown: tables for each machine, ours beside automatic JAX and beside by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

Answer = Mapping[str, Any]
_LABELS = ("ours", "automatic", "by hand")
_WORK = (
    ("case", "cycles, ours", "automatic", "ratio", "by hand", "ratio")
    + ("temporaries, ours", "automatic", "ratio", "by hand", "ratio")
    + ("alive at once, ours", "automatic", "ratio", "by hand", "ratio")
    + ("accessed, ours", "automatic", "by hand")
)
_SENT = ("case", "sent, ours", "automatic", "by hand", "behind compute", "collectives, ours", "automatic", "by hand")
_PACKAGES = ("jax", "libtpu", "jax-cuda12-pjrt")


def tables(answers: Sequence[Answer], limit: int) -> str:
    """Two tables for each machine, what is computed and what is sent; and a line for each program without an answer."""
    parts = [f"{versions()}; at most {limit} s of processor time for each program."]
    for machine in dict.fromkeys(each["machine"] for each in answers):
        own = [each for each in answers if each["machine"] == machine]
        rows = {row: {each["program"]: each for each in own if each["row"] == row} for row in (e["row"] for e in own)}
        lines = [f"**{machine}**", "", *_table(_WORK, [_work(row, programs) for row, programs in rows.items()])]
        lines += ["", *_table(_SENT, [_sent(row, programs) for row, programs in rows.items()])]
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


def _work(row: str, programs: Mapping[str, Answer]) -> tuple[str, ...]:
    of = [programs.get(label, {}) for label in _LABELS]
    accessed = (f"{each['accessed']:,.0f}" if each.get("accessed") else "" for each in of)
    compared = (cell for what in ("cycles", "temporaries", "peak") for cell in _compared(of, what))
    return (_title(row, of[0]), *compared, *accessed)


def _sent(row: str, programs: Mapping[str, Answer]) -> tuple[str, ...]:
    of = [programs.get(label, {}) for label in _LABELS]
    hidden = f"{of[0]['hidden']:.0%}" if of[0].get("sent") else ""
    return (_title(row, of[0]), *(_number(each, "sent") for each in of), hidden, *map(_collectives, of))


def _title(row: str, ours: Answer) -> str:
    return str(ours.get("title", row))


def _compared(of: Sequence[Answer], what: str) -> tuple[str, ...]:
    """Ours, and each peer with what ours is of it."""
    ours, *peers = of
    beside = (cell for peer in peers for cell in (_number(peer, what), _ratio(ours.get(what), peer.get(what))))
    return (_number(ours, what), *beside)


def _ratio(ours: float | None, peer: float | None) -> str:
    return f"{ours / peer:.3f}" if ours is not None and peer else ""


def _number(answer: Answer, what: str) -> str:
    value = answer.get(what)
    if value is None:
        kernels = answer.get("kernels") if what == "cycles" else None
        return f"({kernels} kernels)" if kernels else ""
    # Gathers and scatters have no estimated cycles: how many ran is said beside the sum.
    without = f" (+{answer['lookups']})" if what == "cycles" and answer.get("lookups") else ""
    return f"{value:,}{without}"


def _collectives(answer: Answer) -> str:
    return ", ".join(f"{times} {kind}" for kind, times in answer.get("collectives", {}).items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Without the columns in which no row has anything: not every compiler says everything."""
    told = [at for at in range(len(head)) if at == 0 or any(row[at] for row in rows)]
    lines = [_line([row[at] for at in told]) for row in (head, *rows)]
    return [lines[0], "|---" * len(told) + "|", *lines[1:]]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
