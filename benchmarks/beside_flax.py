"""Layers and models beside Flax's own, value and gradients: `python -m benchmarks.beside_flax [--machine v5e:2x4]`.

Counts and processor time of one CPU device, and what the compiler of a TPU estimates where it is installed
(`pip install 'tapestry-jax[aot]'`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import tapestry_jax as tp
from benchmarks.aot import devices, said
from benchmarks.costs import counts
from benchmarks.flax_pairs import PAIRS, Pair
from benchmarks.machine import machine
from benchmarks.timing import paired
from combinators.frozen import dataclass

TIME, CYCLES = 1.05, 1.02


@dataclass(frozen=True)
class Program:
    """A module with its gradients: `step(params, rest, x)`, and what it is given."""

    step: Callable[..., Any]
    arguments: tuple[Any, ...]


def programs(pair: Pair, arrays: bool = False) -> tuple[Program, Program]:
    """Ours and that of Flax: results, what is written, and gradients by parameters and by operands of real numbers.

    Args:
      pair: the modules.
      arrays: whether the arguments hold numbers, the same for both; else they are types.
    """
    make: Callable[[Any], Any] = (lambda create: create()) if arrays else nnx.eval_shape
    # The peers say how their parameters lie on a mesh; here there is none.
    with nnx.use_eager_sharding(False):
        ours, theirs = make(pair.ours), make(pair.theirs)
    given = _type(pair)
    graph = tp.trace(ours, given)

    def of_ours(state: Any, x: Any) -> Any:
        found = graph(state, x)
        return found if isinstance(found, tuple) else (found, ())

    graphdef = nnx.graphdef(theirs)

    def of_flax(state: Any, x: Any) -> Any:
        module = nnx.merge(graphdef, state, copy=True)
        y = module(x)
        return y, nnx.state(module, nnx.Not(nnx.Param))

    x = _array(pair.x) if arrays else pair.x
    made: list[Program] = []
    for module, call in ((ours, of_ours), (theirs, of_flax)):
        params, rest = nnx.state(module, nnx.Param, ...)
        made.append(Program(_with_gradients(call), (params, rest, x)))
    return made[0], made[1]


def measured(pair: Pair, rounds: int) -> dict[str, Any]:
    """FLOPs, bytes and processor seconds of a call on one CPU device, ours first."""
    ours, theirs = programs(pair, arrays=True)
    runs = [jax.jit(program.step).lower(*program.arguments).compile() for program in (ours, theirs)]
    found: dict[str, Any] = {name: [counts(run).get(name) for run in runs] for name in ("flops", "bytes")}
    calls = [
        lambda run=run, args=program.arguments: run(*args) for run, program in zip(runs, (ours, theirs), strict=True)
    ]
    if rounds:
        times = paired(calls[0], calls[1], rounds=rounds, clock=time.process_time)
        found |= {"seconds": [times.ours, times.peer], "time": times.ratio}
    return found


def compiled(pair: Pair, name: str) -> dict[str, Any]:
    """Cycles, bytes and temporaries that a machine's compiler says for one device, ours first."""
    mesh = tp.mesh(devices(name)[:1], data=1)
    whole = NamedSharding(mesh, PartitionSpec())
    found: list[Any] = []
    for program in programs(pair):
        placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), program.arguments)
        found.append(said(jax.jit(program.step).lower(*placed).compile(), mesh))
    names = ("cycles", "accessed", "temporaries", "kernels", "lookups")
    return {name: [getattr(each, name) for each in found] for name in names}


def _with_gradients(call: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, rest: Any, x: Any) -> Any:
        is_real = jnp.issubdtype(x.dtype, jnp.floating)

        def scored(params: Any, *operand: Any) -> Any:
            return call(nnx.merge_state(params, rest), *(operand or (x,)))

        y, pull, written = jax.vjp(scored, params, *([x] if is_real else []), has_aux=True)
        return y, written, pull(y)

    return step


def _type(pair: Pair) -> Any:
    if pair.names is None:
        return pair.x
    return tp.TensorType(dict(zip(pair.names.split(), pair.x.shape, strict=True)), pair.x.dtype)


def _array(x: Any) -> Any:
    key = jax.random.key(1)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jax.random.randint(key, x.shape, 0, 256)
    return jax.random.normal(key, x.shape, x.dtype)


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The answers as Markdown, a line for each layer."""
    head = "| layer or model | cycles, ours | Flax | ratio | processor time | FLOPs | bytes, CPU | accessed, TPU |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for name, told in found.items():
        ours, theirs = (_cycles(told, at) for at in (0, 1))
        both = [told.get("cycles", [None, None])[at] for at in (0, 1)]
        ratios = [_ratio(told.get(each)) for each in ("flops", "bytes", "accessed")]
        spent = f"{told['time']:.3f}" if "time" in told else ""
        lines.append(f"| {name} | {ours} | {theirs} | {_ratio(both)} | {spent} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def _cycles(told: Mapping[str, Any], at: int) -> str:
    if "cycles" not in told:
        return ""
    if told["cycles"][at] is None:
        return f"({told['kernels'][at]} kernels)"
    return f"{told['cycles'][at]:,}" + (f" (+{told['lookups'][at]})" if told["lookups"][at] else "")


def _ratio(both: Any) -> str:
    return f"{both[0] / both[1]:.3f}" if both and both[0] and both[1] else ""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; returns 0, since numbers decide nothing here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_flax", description=__doc__)
    parser.add_argument("--machine", help="also ask its compiler, such as v5e:2x4")
    parser.add_argument("--layer", nargs="+", choices=[*PAIRS, []], default=list(PAIRS), help="the layers and models")
    parser.add_argument("--rounds", type=int, default=0, help="turns of the timing on a CPU; 0 counts alone")
    parser.add_argument("--json", type=Path, help="where answers are kept, and a run goes on")
    chosen = parser.parse_args(arguments)
    print(machine(), flush=True)
    kept = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.exists() else {}
    for name in chosen.layer:
        told = kept.setdefault(name, {})
        if "flops" not in told or (chosen.rounds and "time" not in told):
            told |= measured(PAIRS[name], chosen.rounds)
        if chosen.machine and "cycles" not in told:
            told |= compiled(PAIRS[name], chosen.machine)
        print(f"{name}: {told}", file=sys.stderr, flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(kept, indent=1))
    print(f"\n{table({name: kept[name] for name in chosen.layer})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
