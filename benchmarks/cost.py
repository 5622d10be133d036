"""Prices beside what they speak of: times of simulated devices, and the TPU compiler's cycles where it is installed.

Ranks are what a search needs of a price: the correlation of ranks (Spearman) is printed below the plans.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from benchmarks.cost_cases import HELD_OUT, LOOKED_AT, Case
from benchmarks.cost_drawn import DRAWN, DRAWN_LAST
from benchmarks.row import Row

RUNS = 7
TPU = "v5e:2x4"
CYCLES = 1.5e9
"""Of a v5e in a second."""
SHRUNK = 8
"""How much shorter the first dimension is on simulated devices: a run takes parts of a second."""


GROUPS: dict[str, Mapping[str, Case]] = {
    "looked at": LOOKED_AT,
    "held out": HELD_OUT,
    "drawn": DRAWN,
    "drawn last": DRAWN_LAST,
}


def rows(runs: int = RUNS) -> list[Row]:
    """Every plan, predicted beside measured, then the correlations and spreads; times in milliseconds."""
    found = _rows("simulated devices", measured({**LOOKED_AT, **HELD_OUT}, runs))
    if importlib.util.find_spec("libtpu") is not None:
        every = {name: case for group in GROUPS.values() for name, case in group.items()}
        found += _rows(f"compiler of {TPU}", compiled(every))
    return found


def measured(cases: Mapping[str, Case], runs: int = RUNS) -> dict[str, tuple[float, float]]:
    """Predicted and measured seconds on eight simulated devices; of several runs the quickest."""
    mesh = tp.mesh(data=2, model=4)
    machine = tp.machines.measure(mesh)
    found: dict[str, tuple[float, float]] = {}
    for name, case in cases.items():
        small = case.shrunk(SHRUNK)
        plan = small.plan(mesh)
        found[name] = plan.cost(machine, grad=small.grad).seconds, _quickest(plan, small, runs)
    return found


def compiled(cases: Mapping[str, Case]) -> dict[str, tuple[float, float]]:
    """Predicted seconds of computing, and those that the TPU compiler's cycles stand for, transfers left out."""
    devices = tp.topology(TPU, data=2, model=4)
    found: dict[str, tuple[float, float]] = {}
    for name, case in cases.items():
        plan = case.plan(devices)
        seen = plan.compile_only(grad=case.grad)
        if seen.cycles:
            found[name] = plan.cost(TPU, grad=case.grad).compute, seen.cycles / CYCLES
    return found


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """The correlation of ranks; of equal numbers the mean rank."""
    first, second = (_ranks(numbers) for numbers in zip(*pairs, strict=True))
    return float(np.corrcoef(first, second)[0, 1])


def spread(pairs: Sequence[tuple[float, float]]) -> float:
    """The factor by which prices usually miss, once all are scaled by the same: e to the deviation of logarithms."""
    first, second = np.asarray(pairs).T
    return float(np.exp(np.std(np.log(first / second))))


def _ranks(numbers: Sequence[float]) -> Any:
    values = np.asarray(numbers)
    return np.asarray([(values < each).sum() + ((values == each).sum() - 1) / 2 for each in values])


def _rows(where: str, found: Mapping[str, tuple[float, float]]) -> list[Row]:
    rows = [Row(f"{where}: {name}", 1e3 * ours, 1e3 * peer, "ms", None) for name, (ours, peer) in found.items()]
    groups = {title: [found[name] for name in group if name in found] for title, group in GROUPS.items()}
    for title, pairs in {**groups, "all": list(found.values())}.items():
        if pairs:
            told = f"{where}: {len(pairs)} plans, {title}"
            rows.append(Row(f"{told}, Spearman", spearman(pairs), 1.0, "", None, "value"))
            rows.append(Row(f"{told}, spread", spread(pairs), 1.0, "", None, "value"))
    return rows


def _quickest(plan: Any, case: Case, runs: int) -> float:
    arguments = plan.put(*(_array(shape, dtype) for shape, dtype in case.arguments))
    program = plan.compile()

    def summed(*args: Any) -> Any:
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(program(*args)))

    run = jax.jit(jax.grad(summed, tuple(range(len(arguments)))) if case.grad else program)
    jax.block_until_ready(run(*arguments))
    took: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        took.append(time.perf_counter() - start)
    return min(took)


def _array(shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(jnp.dtype(dtype))
