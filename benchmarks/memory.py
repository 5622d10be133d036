"""Memory as predicted, beside what compilers allot: `python -m benchmarks.memory --machine cpu v5e:2x4 h100:1x8`.

A program is compiled once: what the compiler said of it is kept under the text of the program, so that a change of the
prediction is weighed in the time that predictions take. Rows stand in the order of their errors.

    python -m benchmarks.memory --machine cpu --kept answers      # needs nothing but this library
    python -m benchmarks.memory --machine v5e:2x4 --row ring      # needs the compilers: make aot installs them
    python -m benchmarks.memory --machine v5p:2x2x2 --full        # sizes that fill a device

Compilers for TPUs say how much is alive at once at most, the memory on the chip included: what they call temporaries
counts gaps between blocks more than once (docs/design/scaling.md). So these are held to that at full sizes, and to what
they allot beside the chip at small ones.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

import tapestry_jax as tp
from benchmarks.aot_table import versions
from benchmarks.cost import spearman
from benchmarks.memory_cases import cases
from tapestry_jax.lowering.pinned import trace_pinned
from tapestry_jax.memory.predicted import memory_of
from tapestry_jax.planning.rewrites.platforms import platforms_of

NEAR, FAIR = 0.1, 0.2
Answer = tuple[int, int, int, int]
"""Arguments, results, temporaries and the peak, as a compiler says them."""


@dataclass(frozen=True)
class Held:
    """A program on a machine, in bytes of a device: arguments, results and temporaries.

    Attributes:
      machine: that it was compiled for.
      name: of the program.
      predicted: of the plan.
      compiled: as the compiler allots them.
      peak: what it says is alive at once at most; None to hold the prediction to the sum of what is allotted.
    """

    machine: str
    name: str
    predicted: tuple[int, int, int]
    compiled: tuple[int, int, int]
    peak: int | None = None

    @property
    def ratio(self) -> float:
        """Predicted over compiled, all together."""
        return sum(self.predicted) / self.said

    @property
    def said(self) -> int:
        """What the prediction is held to."""
        return sum(self.compiled) if self.peak is None else self.peak

    @property
    def error(self) -> float:
        """The factor by which it misses, to either side."""
        return max(self.ratio, 1 / self.ratio)


def main(arguments: list[str] | None = None) -> int:
    """Print a table for each machine; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--machine", nargs="+", default=["cpu"], help="cpu, or machines of eight devices")
    parser.add_argument("--row", nargs="+", default=[""], help="names of rows, whole or in part")
    parser.add_argument("--kept", type=Path, help="a folder in which compilers' answers are kept")
    parser.add_argument("--full", action="store_true", help="sizes that fill a device")
    parser.add_argument("--no-compiler", action="store_true", help="ask none: rows that are not kept are left out")
    chosen = parser.parse_args(arguments)
    jax.config.update("jax_num_cpu_devices", 8)
    for machine in chosen.machine:
        kept = Kept(chosen.kept, not chosen.no_compiler)
        rows = list(held(machine, chosen.row, kept, chosen.full))
        print(f"\n**{machine}** ({versions()})\n\n{table(rows)}", flush=True)
    return 0


def held(machine: str, rows: Sequence[str], kept: Kept, full: bool = False) -> Iterator[Held]:
    """Every row whose name holds one of these, forward and with gradients; without those that the compiler refuses.

    Args:
      machine: `cpu` or one of `tp.topology`.
      rows: names, whole or in part.
      kept: where answers are.
      full: at sizes that fill a device.
    """
    # Where TPUs have room on the chip, much is there that is no temporary in memory, and copies of arguments.
    by_peak = full and machine.startswith(("v", "tpu"))
    devices = tuple(jax.devices("cpu")[:8]) if machine == "cpu" else tuple(tp.topology(machine, all=8).devices.flat)
    for name, make in cases(full).items():
        if not any(row in name for row in rows):
            continue
        plan = make(devices)
        for grad in (False, True):
            traced: Any = trace_pinned(plan.schedule, plan.mesh, grad)
            kind = devices[0].device_kind
            found = memory_of(traced.jaxpr, plan.schedule, platforms_of(plan.mesh), grad, kind)
            said = kept.ask(machine, traced.lower())
            title = f"{name}, gradients" if grad else name
            print(f"{title}: {said}", file=sys.stderr, flush=True)
            if said is not None:
                temporaries = found.temporaries + (found.on_chip if by_peak else 0)
                predicted = found.arguments, found.results, temporaries
                yield Held(machine, title, predicted, said[:3], said[3] if by_peak else None)


class Kept:
    """What compilers said, by their versions and the text of the program: it is asked for once.

    Args:
      folder: of the file of answers; None keeps none.
      asks: whether compilers are asked for what is not there.
    """

    def __init__(self, folder: Path | None, asks: bool) -> None:
        self._path = None if folder is None else folder / "memory.jsonl"
        self._asks = asks
        lines = self._path.read_text().splitlines() if self._path is not None and self._path.exists() else []
        self._known: dict[str, Answer | None] = {
            key: None if sizes is None else tuple(sizes) for key, sizes in map(json.loads, lines)
        }

    def ask(self, machine: str, lowered: Any) -> Any:
        """Arguments, results, temporaries and the peak as compiled; None where it is not known, or does not fit."""
        text = f"{machine} {versions()} with peak {lowered.as_text()}"
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in self._known and self._asks:
            sizes = _compiled(lowered)
            self._known[key] = sizes
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, sizes]) + "\n")
        return self._known.get(key)


def _compiled(lowered: Any) -> Answer | None:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
            said = lowered.compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None
    allotted = said.argument_size_in_bytes, said.output_size_in_bytes, said.temp_size_in_bytes
    return *allotted, said.peak_memory_in_bytes


def table(rows: Sequence[Held]) -> str:
    """The rows as Markdown, the largest error first; before them how many are near, and how ranks agree."""
    if not rows:
        return "no row"
    lines = [
        f"{len(rows)} programs: {_within(rows, NEAR)} within a tenth, {_within(rows, FAIR)} within a fifth; "
        f"{min(row.ratio for row in rows):.2f} to {max(row.ratio for row in rows):.2f}; {_ranks(rows)}",
        "",
        "| program | predicted | compiled | ratio | temporaries, predicted | compiled |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: -row.error):
        ours, its = row.predicted, row.compiled
        lines.append(f"| {row.name} | {sum(ours):,} | {row.said:,} | {row.ratio:.2f} | {ours[2]:,} | {its[2]:,} |")
    return "\n".join(lines)


def _ranks(rows: Sequence[Held]) -> str:
    if len(rows) < 2:
        return "one row has no rank"
    return f"Spearman {spearman([(sum(row.predicted), row.said) for row in rows]):.3f}"


def _within(rows: Sequence[Held], share: float) -> int:
    return sum(abs(row.ratio - 1) <= share for row in rows)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
