"""Prices and predicted memory beside a GPU: `python -m benchmarks.gpu_cost --json FILE`.

The plans of `cost_cases` and `cost_drawn` at their whole sizes on one device, and what `tp.machines.measure` finds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from benchmarks.cost import GROUPS, spearman, spread
from benchmarks.cost_cases import Case
from benchmarks.gpu import calls_of, turn
from benchmarks.machine import machine
from tapestry_jax.lowering.pinned import lower_pinned

ROUNDS = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_cost", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--few", type=int, default=None, help="so many plans of each group")
    parser.add_argument("--shrunk", type=int, default=1, help="the first dimension so much shorter")
    chosen = parser.parse_args(arguments)
    mesh = tp.mesh(jax.devices()[:1], data=1, model=1)
    begun = time.perf_counter()
    here = tp.machines.measure(mesh)
    print(here, f"{time.perf_counter() - begun:.1f} s", sep="\n", flush=True)
    cases = {
        name: (group, case if chosen.shrunk == 1 else case.shrunk(chosen.shrunk))
        for group, members in GROUPS.items()
        for name, case in list(members.items())[: chosen.few]
    }
    found: dict[str, Any] = {"machine": machine(), "measured": here.to_json(), "plans": {}}
    with ThreadPoolExecutor(12) as pool:
        waiting = {name: (group, case, *_compiling(pool, case, mesh)) for name, (group, case) in cases.items()}
        for name, (group, case, plan, compiling, flat) in waiting.items():
            try:
                row = _row(plan, case, compiling.result(), flat, here)
            except Exception as error:  # noqa: BLE001, the others go on
                row = {"why": f"{type(error).__name__}: {str(error)[:300]}"}
            found["plans"][name] = {"group": group, **row}
            chosen.json.write_text(json.dumps(found, indent=1))
    print(f"{time.perf_counter() - begun:.0f} s", summary(found["plans"]), sep="\n", flush=True)
    return 0


def _compiling(pool: Any, case: Case, mesh: Any) -> tuple[Any, Any, Any]:
    plan = case.plan(mesh)
    lowered = lower_pinned(plan.schedule, plan.mesh, case.grad)
    return plan, pool.submit(lowered.compile), lowered


def _row(plan: Any, case: Case, program: Any, lowered: Any, here: Any) -> dict[str, Any]:
    structs = jax.tree.leaves(lowered.in_avals)
    arguments = [
        jax.random.normal(jax.random.key(at), struct.shape, struct.dtype)
        if jnp.issubdtype(struct.dtype, jnp.floating)
        else jnp.zeros(struct.shape, struct.dtype)
        for at, struct in enumerate(structs)
    ]
    flat = jax.tree.unflatten(jax.tree.structure(lowered.in_avals), arguments)
    args, keywords = flat
    args = jax.device_put(args, program.input_shardings[0])
    sets: list[Any] = [args]

    def run(*given: Any) -> Any:
        return program(*given, **keywords)

    calls = calls_of(run, sets)
    memory = program.memory_analysis()
    return {
        "seconds": statistics.median(turn(run, sets, calls) for _ in range(ROUNDS)),
        "allotted": memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "sheet": plan.cost("H100", grad=case.grad).seconds,
        "here": plan.cost(here, grad=case.grad).seconds,
        "predicted": plan.memory(grad=case.grad).total,
    }


def summary(plans: Mapping[str, Mapping[str, Any]]) -> str:
    """Ranks, spreads and quantiles of the ratios of measured to predicted."""
    rows = [row for row in plans.values() if "why" not in row]
    lines = [f"{len(rows)} plans; not run: {[(name, row['why']) for name, row in plans.items() if 'why' in row]}"]
    for told, predicted, measured in (
        ("seconds, data sheet", "sheet", "seconds"),
        ("seconds, figures measured here", "here", "seconds"),
        ("bytes", "predicted", "allotted"),
    ):
        pairs = [(row[predicted], row[measured]) for row in rows]
        ratios = _quantiles([measured / predicted for predicted, measured in pairs])
        lines.append(
            f"{told}: Spearman {spearman(pairs):.3f}, spread {spread(pairs):.2f}, measured / predicted {ratios}"
        )
    return "\n".join(lines)


def _quantiles(numbers: Sequence[float]) -> str:
    ordered = sorted(numbers)
    return ", ".join(
        f"{at:.0%} {ordered[round(at * (len(ordered) - 1))]:.2f}" for at in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)
    )


if __name__ == "__main__":
    sys.exit(main())
