"""Print the tables: `python -m benchmarks [one_device mesh_step ...] [--devices 1] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax

from benchmarks.aot_kept import Kept
from benchmarks.aot_run import LIMIT, Answer, answers
from benchmarks.aot_table import tables, versions
from benchmarks.machine import machine
from benchmarks.row import table

SECTIONS = {
    "one_device": "One device, beside plain jax.numpy",
    "mesh_step": "Mesh 2x4, beside jax.jit with NamedSharding",
    "loom_attention": "Loom: ring attention",
    "loom_microbatch": "Loom: gradient accumulation",
    "loom_flash": "Loom: FlashAttention on one device",
    "loom_cross_entropy": "Loom: fused linear cross-entropy on one device",
    "loom_stencil": "Loom: halo exchange, communication-avoiding stencils",
    "loom_pipeline": "Loom: pipeline",
    "loom_scan": "Loom: parallel scan",
    "loom_topk": "Loom: the largest of many",
    "planning_time": "Before XLA",
    "call_overhead": "Calls",
    "monoids": "Folds by aggregators, beside plain jax.numpy and NumPy",
    "loom_fft": "Loom: pencil FFT",
    "cost": "Prices, beside measured times and the TPU compiler's cycles",
}
ELSEWHERE = {"aot": "The compilers for TPU and CUDA, beside automatic JAX and by hand"}
"""Sections that need more than the library: `pip install 'tapestry-jax[aot]'`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the sections and print them; returns 0, since timings decide nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = SECTIONS | ELSEWHERE
    parser.add_argument("sections", nargs="*", choices=[*known, []], help="the same as --only")
    parser.add_argument("--only", nargs="+", choices=known, default=list(SECTIONS), help="the sections to run")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    # With eight devices XLA keeps eight threads, whatever the machine has: what runs on one device is slower then.
    parser.add_argument("--devices", type=int, default=8, help="simulated CPU devices; 1 for sections on one device")
    parser.add_argument("--machine", nargs="+", default=["v5e:2x4"], help="for `aot`: machines of eight devices")
    parser.add_argument("--limit", type=int, default=LIMIT, help="for `aot`: processor seconds for each program")
    parser.add_argument("--row", nargs="+", default=[], help="for `aot`: names of rows, whole or in part")
    parser.add_argument("--kept", type=Path, help="for `aot`: a folder of answers, where a run goes on")
    parser.add_argument("--table", action="store_true", help="for `aot`: print what is kept, and ask nothing")
    chosen = parser.parse_args(arguments)
    jax.config.update("jax_num_cpu_devices", chosen.devices)
    print(machine(), flush=True)
    found: dict[str, list[dict[str, object]]] = {}
    for name in chosen.sections or chosen.only:
        if name == "aot":
            said: list[Answer] = []
            for answer in _said(chosen):
                said.append(answer)
                _store(chosen.json, {name: said})
            if chosen.kept is not None:
                said = list(Kept(chosen.kept).answers())
            print(f"\n{known[name]}\n\n{tables(said, chosen.limit)}", flush=True)
            found[name] = [dict(answer) for answer in said]
            continue
        rows = importlib.import_module(f"benchmarks.{name}").rows()
        print(f"\n{known[name]}\n\n{table(rows)}", flush=True)
        found[name] = [row.as_dict() for row in rows]
    _store(chosen.json, found)
    return 0


def _store(path: Path | None, found: Mapping[str, object]) -> None:
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "versions": versions(), "sections": found}, indent=2))


def _said(chosen: argparse.Namespace) -> Iterator[Answer]:
    """The answers, each shown when it comes: a compiler may take a minute."""
    if chosen.table:
        return
    kept = Kept(chosen.kept) if chosen.kept is not None else None
    for answer in answers(chosen.machine, chosen.limit, chosen.row, kept):
        shown = answer.get("why") or f"{answer['seconds']} s"
        print(f"{answer['machine']}, {answer['row']}, {answer['program']}: {shown}", file=sys.stderr, flush=True)
        yield answer


if __name__ == "__main__":
    sys.exit(main())
