"""Asking the compilers, one row after the other: `python -m benchmarks aot [--machine v5e:2x4 ...] [--limit 120]`.

A row runs in a process of its own, and each of its programs has a limit of processor seconds: a program that reaches it
ends the process, and the next one is asked in another. What the folder of `--kept` answers is not asked.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import jax

from benchmarks.aot_kept import Kept
from combinators.errors import MeshError, PlanError

LIMIT = 120
"""Processor seconds for a program: tracing, lowering and compiling."""
Answer = Mapping[str, Any]


def answers(
    machines: Sequence[str], limit: int, rows: Sequence[str] = (), kept: Kept | None = None
) -> Iterator[Answer]:
    """What the compilers say, program by program.

    Args:
      machines: of eight devices.
      limit: processor seconds for each program.
      rows: names of rows that are wanted, whole or in part; none is all.
      kept: where answers are kept; what is there already is not asked for.

    Yields:
      `machine`, `row`, `program`; `seconds` and what `aot.Said` holds, or `why` there is none; nothing of what is kept.
    """
    for machine in machines:
        for row in _wanted(rows):
            known = kept.labels(machine, row, limit) if kept is not None else frozenset[str]()
            for answer in _row(machine, row, limit, known):
                if kept is not None:
                    kept.add(answer, limit)
                yield answer


def _wanted(rows: Sequence[str]) -> list[str]:
    """The names that are meant: the name itself where it is one, or all that hold it."""
    from benchmarks.aot import names

    every = names()
    if unknown := [row for row in rows if not any(row in name for name in every)]:
        raise SystemExit(f"no row is called so, or holds {', '.join(map(repr, unknown))}; there are {', '.join(every)}")
    return [
        name for name in every if not rows or any(row == name or (row not in every and row in name) for row in rows)
    ]


def _row(machine: str, row: str, limit: int, known: frozenset[str]) -> Iterator[Answer]:
    from benchmarks.aot import LABELS, SIZES

    labels = [label for label in LABELS if label not in known and (row not in SIZES or label != "by hand")]
    while labels:
        command = [sys.executable, "-m", "benchmarks.aot_run", machine, row, str(limit), *labels]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                labels.pop(0)
                yield json.loads(line)
        if labels:
            # The process ended in the first that it did not answer.
            over = done.returncode in (-24, -9)
            why = f"more than {limit} s of processor time" if over else f"the compiler ended with {done.returncode}"
            yield {"machine": machine, "row": row, "program": labels.pop(0), "why": why}


def ask(machine: str, row: str, limit: int, labels: Sequence[str]) -> Iterator[Answer]:
    """Compile the programs of a row in this process."""
    from benchmarks.aot import lowered, said

    for label in labels:
        head = {"machine": machine, "row": row, "program": label}
        before = _spent()
        resource.setrlimit(resource.RLIMIT_CPU, (int(before) + limit, resource.RLIM_INFINITY))
        try:
            program, mesh, title = lowered(row, label, machine)
            found = {"title": title, **asdict(said(program.compile(), mesh))}
        except (PlanError, MeshError, jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            yield {**head, "why": f"{type(error).__name__}: {(lines or ['no reason'])[0].strip()[:160]}"}
        else:
            yield {**head, "seconds": round(_spent() - before, 1), **found}


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    for answer in ask(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]):
        print(json.dumps(answer), flush=True)
