"""The page: docs/lifted-models.md, written from the registry and from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lifted.entry import Entry
from benchmarks.lifted.kept import Key, key
from benchmarks.lifted.measured import LARGER, LIMIT, TOLERANCE
from benchmarks.lifted.registry import ENTRIES, GROUPS

Answer = Mapping[str, Any]
FILE = Path(__file__).parents[2] / "docs" / "lifted-models.md"
PLANS = ("by hand", "found")

_HEAD = ("model", "of", "operations", "opaque", "by hand", "sent, automatic", "found", "sent, automatic", "error")
_TOP = """# Models that others wrote

`python -m benchmarks.lifted --write` writes this page; `make models` installs the packages, as
`benchmarks/lifted/requirements.txt` has them, and measures what is not kept yet.

Each model comes from a package on PyPI and is lifted as it is, small and with random weights: `tp.lift(model, x)`, or
a function that calls it. The graph is run unplanned, under a plan by hand and under one that `tp.search` finds, on
eight simulated devices as a mesh of `data=2, model=4`: results, and gradients by all floating arguments, are held
against the function itself in `jax.jit` on one device.

"""
_LEGEND = f"""
- **operations**: of the graph; what is in a loop counts once. **opaque**: what no rule knows, by its primitive: right,
  and cut by no plan.
- **by hand**, **found**: the dimensions that the plan cuts, and over which mesh axes; `-` where it cuts nothing. The
  search prices values and gradients on a machine on which a model weighs as if every dimension were {LARGER} times as
  long. It begins with the plan by hand and has {LIMIT} seconds.
- **sent, automatic**: collectives run and bytes for each device, of the compiled program of values and gradients;
  in brackets those of `jax.jit` with the same places of arguments and results.
- **error**: the largest difference of a result or gradient in any of the three runs, of the largest cell of its
  tensor; the promise is {TOLERANCE:g}.
"""


def page(answers: Mapping[Key, Answer]) -> str:
    """The page of all that was measured."""
    parts = [_TOP + _summary(answers), _LEGEND]
    for title, entries in GROUPS.items():
        rows = [_row(entry, answers[key(entry)]) for entry in entries if key(entry) in answers]
        parts.append(
            f"\n## {title}\n\n" + "\n".join([_line(_HEAD), "|---" * len(_HEAD) + "|", *map(_line, rows)]) + "\n"
        )
    parts.append("\n## What is not as it should be\n\n" + "".join(f"- {text}\n" for text in _remarks(answers)))
    parts.append(f"\nMeasured with {_versions(answers)}.\n")
    return "".join(parts)


def holds(answer: Answer) -> bool:
    """Whether a model could be lifted and planned, and all three runs gave what the function gives."""
    runs = [answer.get(label, {"why": ""}) for label in ("unplanned", *PLANS)]
    return "why" not in answer and all("why" not in run for run in runs) and _error(answer) <= TOLERANCE


def _summary(answers: Mapping[Key, Answer]) -> str:
    told = [answers[key(entry)] for entry in ENTRIES if key(entry) in answers]
    clear = sum(1 for answer in told if not answer.get("opaque", True))
    less = [(run["bytes"], run["automatic"]["bytes"]) for run in _runs(told, "by hand")]
    counts = [sum(1 for ours, theirs in less if test(ours, theirs)) for test in (_fewer, _same)]
    return (
        f"Of {len(told)} models of {len({answer['package'] for answer in told})} packages, {sum(map(holds, told))} are "
        f"lifted, planned twice and equal, {clear} without an opaque operation. By hand {counts[0]} send fewer bytes "
        f"than automatic JAX, {counts[1]} as many within 2 %, {len(less) - sum(counts)} more.\n"
    )


def _fewer(ours: int, theirs: int) -> bool:
    return ours < 0.98 * theirs


def _same(ours: int, theirs: int) -> bool:
    return 0.98 * theirs <= ours <= 1.02 * theirs + 16


def _runs(told: Sequence[Answer], label: str) -> Iterator[Answer]:
    for answer in told:
        run = answer.get(label, {})
        if "why" not in run and "bytes" in run.get("automatic", {}):
            yield run


def _row(entry: Entry, answer: Answer) -> tuple[str, ...]:
    head = (f"{entry.name} ({entry.kind})", f"`{entry.package}`")
    if "why" in answer:
        return (*head, "refused", *([""] * (len(_HEAD) - 3)))
    opaque = ", ".join(f"{count} `{name}`" for name, count in answer["opaque"].items()) or "none"
    plans = [cell for label in PLANS for cell in _plan(answer.get(label, {"why": "not asked"}))]
    return (*head, str(answer["operations"]), opaque, *plans, f"{_error(answer):.0e}")


def _plan(run: Answer) -> tuple[str, str]:
    if "entries" not in run:
        return "refused", ""
    listed = [f"{dim}: {'+'.join(item) if isinstance(item, list) else item}" for dim, item in run["entries"].items()]
    told = ", ".join(listed[:3]) + (f", {len(listed) - 3} more" if len(listed) > 3 else "")
    if "bytes" not in run:
        return told or "-", "does not run"
    theirs = run["automatic"]
    beside = f"{theirs['collectives']:,}: {theirs['bytes']:,}" if isinstance(theirs, dict) else "refused"
    return told or "-", f"{run['collectives']:,}: {run['bytes']:,} B ({beside} B)"


def _error(answer: Answer) -> float:
    runs = [answer.get(label, {}) for label in ("unplanned", *PLANS)]
    return max(
        (float(run[part]) for run in runs for part in ("value", "gradient") if part in run), default=float("nan")
    )


def _remarks(answers: Mapping[Key, Answer]) -> list[str]:
    found: list[str] = []
    for entry in ENTRIES:
        answer = answers.get(key(entry), {})
        name = f"{entry.name} of `{entry.package}`"
        whys = [
            answer.get("why"),
            *(f"{label}: {answer[label]['why']}" for label in PLANS if "why" in answer.get(label, {})),
        ]
        found += [f"{name}: {why}" for why in whys if why]
        if "why" not in answer and answer and _error(answer) > TOLERANCE:
            found.append(f"{name} differs by {_error(answer):.0e}.")
        for label in PLANS:
            theirs = answer.get(label, {}).get("automatic")
            if isinstance(theirs, dict) and max(theirs["value"], theirs["gradient"]) > TOLERANCE:
                found.append(
                    f"{name}, {label}: automatic JAX gives other numbers than JAX on one device, by "
                    f"{max(theirs['value'], theirs['gradient']):.0e}; the plan does not."
                )
    return found or ["Nothing."]


def _versions(answers: Mapping[Key, Answer]) -> str:
    listed = {name: version for answer in answers.values() for name, version in answer.get("versions", {}).items()}
    return ", ".join(f"{name} {listed[name]}" for name in sorted(listed))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
