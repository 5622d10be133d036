"""One GPU: times in turns, what is allotted, and what was in use at once, each in a process of its own.

`python -m benchmarks.gpu --json FILE [--row NAME ...] [--small]`; `--peak ROW LABEL` is what the processes run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu_cases import ROWS, Row
from benchmarks.machine import machine

TURN = 0.02
"""Seconds of one turn of a program, as near as whole calls come to it."""
MOST = 64
"""Calls in one turn."""


def main(arguments: list[str] | None = None) -> int:
    """Measure rows, one after the other, and write down what is found after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--row", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true", help="sizes with which the benchmark itself is tried")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--label", nargs="+", default=[], help="of each row these programs alone; `ours` among them")
    parser.add_argument("--peak", nargs=2, metavar=("ROW", "LABEL"), help="what one program has in use at once")
    parser.add_argument("--peaks", type=int, default=0, help="so many processes at once say what is in use at once")
    chosen = parser.parse_args(arguments)
    if chosen.peak:
        print(json.dumps(in_use(ROWS[chosen.peak[0]](chosen.small), chosen.peak[1])))
        return 0
    print(machine(), jax.devices()[0].device_kind, flush=True)
    found: dict[str, Any] = {"machine": machine(), "device": jax.devices()[0].device_kind, "ceilings": ceilings()}
    print(json.dumps(found["ceilings"]), flush=True)
    found["rows"] = {}
    for name in chosen.row:
        begun = time.perf_counter()
        try:
            row = ROWS[name](chosen.small)
            kept = {label: each for label, each in row.programs.items() if label in (chosen.label or row.programs)}
            if not kept:
                raise ValueError(f"none of the programs is called so; they are {', '.join(row.programs)}")
            found["rows"][name] = measured(replace(row, programs=kept), found["ceilings"], chosen.rounds)
        except Exception as error:  # noqa: BLE001, the other rows go on
            found["rows"][name] = {"why": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(name, f"{time.perf_counter() - begun:.0f} s", _line(found["rows"][name]), flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(found, indent=1))
    if chosen.peaks:
        found["peaks"] = peaks(found["rows"], chosen.peaks, chosen.small)
        print(json.dumps(found["peaks"]), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def ceilings(size: int = 8192) -> dict[str, float]:
    """What products and copies reach here: FLOP/s by dtype and precision, and bytes per second."""
    size = size if jax.default_backend() == "gpu" else 256
    found: dict[str, float] = {}
    for name, dtype, precision in (
        ("bfloat16", jnp.bfloat16, None),
        ("float16", jnp.float16, None),
        ("float32", jnp.float32, None),
        ("float32, highest", jnp.float32, "highest"),
    ):
        pair = [jax.random.normal(jax.random.key(at), (size, size), dtype) for at in range(2)]
        run = jax.jit(lambda a, b, precision=precision: jnp.matmul(a, b, precision=precision))
        found[name] = 2 * size**3 / alone(run, [tuple(pair), tuple(pair[::-1])])
    row = jax.random.normal(jax.random.key(0), (size * size * 4,))
    copied = jax.jit(lambda x: x + 1)
    found["copied"] = 2 * row.nbytes / alone(copied, [(row,)])
    found["launch"] = alone(copied, [(row[:8],)])
    return found


def alone(run: Callable[..., Any], sets: Sequence[tuple[Any, ...]], rounds: int = 7) -> float:
    """Median seconds of a call."""
    calls = calls_of(run, sets)
    return statistics.median(turn(run, sets, calls) for _ in range(rounds))


def calls_of(run: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> int:
    """Calls of one turn; the first ones warm up."""
    turn(run, sets, len(sets))
    return int(min(max(TURN / turn(run, sets, 2), 1), MOST))


def turn(run: Callable[..., Any], sets: Sequence[tuple[Any, ...]], calls: int) -> float:
    """Seconds of a call: so many are sent off, over the sets in turn, and waited for together."""
    begun, result = time.perf_counter(), None
    for call in range(calls):
        result = run(*sets[call % len(sets)])
    jax.block_until_ready(result)
    return (time.perf_counter() - begun) / calls


def measured(row: Row, ceiling: Mapping[str, float], rounds: int) -> dict[str, Any]:
    """Times of all programs in turns, their ratios to ours turn by turn, memory, and the least time there can be."""
    sets = [row.arguments, jax.tree.map(lambda leaf: jnp.flip(leaf, -1) if leaf.ndim else leaf, row.arguments)]
    lowered = {label: jax.jit(program).lower(*row.arguments) for label, program in row.programs.items()}
    with ThreadPoolExecutor(8) as pool:
        compiling = {label: pool.submit(each.compile) for label, each in lowered.items()}
    compiled, refused = {}, {}
    for label, future in compiling.items():
        try:
            compiled[label] = future.result()
            jax.block_until_ready(compiled[label](*row.arguments))
        except Exception as error:  # noqa: BLE001, such as for want of memory
            compiled.pop(label, None)
            refused[label] = f"{type(error).__name__}: {str(error)[:300]}"
    runs = {label: jax.jit(row.programs[label]) for label in compiled}
    del compiling
    calls = {label: calls_of(run, sets) for label, run in runs.items()}
    times: dict[str, list[float]] = {label: [] for label in runs}
    for number in range(rounds):
        order = list(runs)
        for label in order[number % len(order) :] + order[: number % len(order)]:
            times[label].append(turn(runs[label], sets, calls[label]))
    results = jax.eval_shape(next(iter(row.programs.values())), *row.arguments)
    least = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves((row.arguments, results)))
    computing = row.flops / ceiling["bfloat16" if row.dtype == "bfloat16" else "float32"]
    ours = times.get("ours", [])
    found: dict[str, Any] = {
        "name": row.name,
        "floor": max(computing, least / ceiling["copied"]),
        "limit": "products" if computing > least / ceiling["copied"] else "memory",
        "times": {label: statistics.median(each) for label, each in times.items()},
        "spread": {label: (min(each), max(each)) for label, each in times.items()},
        "ratios": {
            label: statistics.median(a / b for a, b in zip(ours, each, strict=True))
            for label, each in times.items()
            if ours
        },
        "refused": refused,
        "allotted": {label: _allotted(program) for label, program in compiled.items()},
        "differences": _differences(row, runs),
    }
    if row.plans:
        found["predicted"] = {label: plan.memory(grad=row.gradients).total for label, plan in row.plans.items()}
        found["priced"] = {label: plan.cost("H100", grad=row.gradients).seconds for label, plan in row.plans.items()}
        found["kernels"] = {label: "dense fused_attention" in plan.explain() for label, plan in row.plans.items()}
    return found


def _differences(row: Row, runs: Mapping[str, Any]) -> dict[str, float]:
    """How far results are from ours, in proportion to the largest number of each leaf."""

    def leaves(label: str) -> list[Any]:
        return [
            np.asarray(leaf.astype(jnp.float32)) for leaf in map(_real, jax.tree.leaves(runs[label](*row.arguments)))
        ]

    if "ours" not in runs:
        return {}
    ours = leaves("ours")
    # What cancels, such as gradients of the biases of keys, is held against the largest of all numbers.
    scales = [max(np.abs(leaf).max(), max(np.abs(each).max() for each in ours) / 100) for leaf in ours]
    return {
        label: max(float(np.abs(a - b).max() / c) for a, b, c in zip(ours, leaves(label), scales, strict=True))
        for label in runs
    }


def _real(leaf: Any) -> Any:
    return leaf.real if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else leaf


def _allotted(program: Any) -> dict[str, int]:
    found = program.memory_analysis()
    return {
        "arguments": found.argument_size_in_bytes,
        "results": found.output_size_in_bytes,
        "temporaries": found.temp_size_in_bytes,
    }


def in_use(row: Row, label: str) -> dict[str, Any]:
    """The most that the allocator of the device had given out, in a process that runs one program."""
    device = jax.devices()[0]
    arguments = jax.device_put(jax.tree.map(np.asarray, row.arguments), device)
    program = jax.jit(row.programs[label]).lower(*arguments).compile()
    before = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    jax.block_until_ready(program(*arguments))
    after = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {"before": before, "peak": after, **_allotted(program)}


def peaks(rows: Mapping[str, Any], processes: int, small: bool) -> dict[str, dict[str, Any]]:
    """What every program that ran has in use at once."""
    wanted = [(name, label) for name, found in rows.items() for label in found.get("times", {})]
    with ThreadPoolExecutor(processes) as pool:
        said = pool.map(lambda pair: _asked(*pair, small), wanted)
    found: dict[str, dict[str, Any]] = {}
    for (name, label), answer in zip(wanted, said, strict=True):
        found.setdefault(name, {})[label] = answer
    return found


def _asked(name: str, label: str, small: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--peak", name, label, *(["--small"] if small else [])]
    # The compiler tries kernels on arrays of its own, which would count.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    own = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": flags}
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"why": done.stderr[-500:]}


def _line(found: Mapping[str, Any]) -> str:
    if "why" in found:
        return str(found["why"])[:600]
    times = ", ".join(f"{label} {1e3 * seconds:.3f}" for label, seconds in found["times"].items())
    ratios = ", ".join(f"{label} {ratio:.3f}" for label, ratio in found["ratios"].items())
    held = ", ".join(f"{label} {each['temporaries']:,}" for label, each in found["allotted"].items())
    off = ", ".join(f"{label} {each:.1e}" for label, each in found["differences"].items())
    return (
        f"{found['name']}\n  ms: {times}; floor {1e3 * found['floor']:.3f} ({found['limit']})\n  ratios: {ratios}\n"
        f"  temporaries: {held}\n  differences: {off}; refused {found['refused']}"
    )


if __name__ == "__main__":
    sys.exit(main())
