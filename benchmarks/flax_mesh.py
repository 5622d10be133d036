"""The quickstart's transformer on a mesh of 2 x 4 beside Flax's logical axis rules: `python -m benchmarks.flax_mesh`.

Both are lowered by `jax.jit` with the same shardings of inputs and outputs; the peer says in its modules how
parameters lie, and XLA does the rest. Value and gradients, and a step of AdamW.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import tapestry_jax as tp
from benchmarks import flax_models
from benchmarks.aot import Said, devices, said
from benchmarks.machine import machine
from benchmarks.models import PLANS, Sizes, model_loss
from benchmarks.timing import Paired, paired

SIZES = Sizes(layers=2, embed=192, heads=4, vocab=256, batch=16, seq=128)
CYCLES, BYTES = 1.0, 1.0
STEPS = ("value and gradients", "AdamW")
OPTIMIZER = optax.adamw(3e-3)


def lowered(label: str, step: str, mesh: Any, sizes: Sizes = SIZES) -> Any:
    """One program, lowered for the devices of a mesh.

    Args:
      label: `ours` or `flax`.
      step: of `STEPS`.
      mesh: with the axes `data` and `model`.
      sizes: of the model.
    """
    loss, module, shardings = (_ours if label == "ours" else _flax)(mesh, sizes)
    params = nnx.state(module)
    words = jax.ShapeDtypeStruct(
        (sizes.batch, sizes.seq), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec("data"))
    )
    whole = NamedSharding(mesh, PartitionSpec())
    placed = _placed(params, shardings)
    if step == STEPS[0]:
        run: Callable[..., Any] = jax.jit(jax.value_and_grad(loss), out_shardings=(whole, shardings))
        return run.lower(placed, words, words)
    kept = jax.eval_shape(OPTIMIZER.init, params)
    lies = optax.tree_map_params(OPTIMIZER, lambda _, at: at, kept, shardings, transform_non_params=lambda _: whole)

    def update(params: Any, kept: Any, tokens: Any, targets: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, tokens, targets)
        changes, kept = OPTIMIZER.update(slopes, kept, params)
        return value, optax.apply_updates(params, changes), kept

    run = jax.jit(update, out_shardings=(whole, shardings, lies))
    return run.lower(placed, _placed(kept, lies), words, words)


def _ours(mesh: Any, sizes: Sizes) -> tuple[Any, Any, Any]:
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    plan = tp.plan(tp.trace(model_loss, module, tokens, tokens), mesh, PLANS["batch, heads, mlp, vocab"])
    return plan.compile(), module, plan.in_shardings[0]


def _flax(mesh: Any, sizes: Sizes) -> tuple[Any, Any, Any]:
    with nnx.use_eager_sharding(False):
        module = nnx.eval_shape(lambda: flax_models.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    graphdef, state = nnx.split(module)
    with nnx.logical_axis_rules(flax_models.RULES):
        shardings = nnx.get_named_sharding(state, mesh)

    def loss(state: Any, tokens: Any, targets: Any) -> Any:
        logits = nnx.merge(graphdef, state)(tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    return loss, module, shardings


def _placed(tree: Any, shardings: Any) -> Any:
    return jax.tree.map(lambda x, at: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at), tree, shardings)


def rows(name: str | None, sizes: Sizes = SIZES) -> dict[str, dict[str, Said]]:
    """What the compilers say, ours beside Flax's; on simulated CPU devices where no machine is named."""
    mesh = tp.mesh(data=2, model=4) if name is None else tp.mesh(devices(name), data=2, model=4)
    return {
        step: {label: said(lowered(label, step, mesh, sizes).compile(), mesh) for label in ("ours", "flax")}
        for step in STEPS
    }


def timed(step: str, rounds: int, sizes: Sizes = SIZES) -> Paired:
    """Processor seconds of a step on eight simulated CPU devices, ours beside Flax's, in turns."""
    mesh, calls = tp.mesh(data=2, model=4), list[Callable[[], Any]]()
    for label in ("ours", "flax"):
        program = lowered(label, step, mesh, sizes)
        run, numbers = program.compile(), np.random.default_rng(0)
        args = jax.tree.map(
            lambda kind, at, numbers=numbers: jax.device_put(_drawn(kind, sizes, numbers), at),
            program.args_info[0],
            run.input_shardings[0],
        )
        calls.append(lambda run=run, args=args: run(*args))
    return paired(calls[0], calls[1], rounds=rounds, clock=time.process_time)


def _drawn(kind: Any, sizes: Sizes, numbers: np.random.Generator) -> Any:
    if jnp.issubdtype(kind.dtype, jnp.integer):
        return numbers.integers(0, sizes.vocab, kind.shape).astype(kind.dtype)
    return np.abs(numbers.normal(0, 0.05, kind.shape)).astype(kind.dtype)


def main(arguments: list[str] | None = None) -> int:
    """Compile and print; returns 0, since numbers decide nothing here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flax_mesh", description=__doc__)
    parser.add_argument("--machine", nargs="+", default=[], help="machines of eight devices, such as v5e:2x4")
    parser.add_argument("--rounds", type=int, default=0, help="turns of a timing on simulated devices; 0 times nothing")
    chosen = parser.parse_args(arguments)
    print(machine(), flush=True)
    for step in STEPS if chosen.rounds else ():
        print("CPU", step, timed(step, chosen.rounds), flush=True)
    for name in (None, *chosen.machine):
        for step, found in rows(name).items():
            print(name or "CPU", step, json.dumps({label: asdict(each) for label, each in found.items()}), flush=True)
    return 0


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    sys.exit(main())
