"""A mesh of 2 x 4 devices: planned training steps beside XLA's own partitioning of the same model."""

from __future__ import annotations

from typing import Any

import jax

import tapestry_jax as tp
from benchmarks import plain
from benchmarks.costs import collective_bytes
from benchmarks.models import PLANS, Sizes, language_model, model_loss, training_step
from benchmarks.row import Row
from benchmarks.timing import paired

TIME, BYTES = 1.05, 1.0
SIZES = Sizes(layers=2, embed=128, heads=4, vocab=512, batch=8, seq=64)
DIRECTIONS = {"loss": lambda loss: loss, "training step": training_step}


def compiled_pair(entries: str, direction: str, mesh: Any, sizes: Sizes) -> tuple[Any, Any, tuple[Any, ...]]:
    """Our compiled plan, the peer under plain `jax.jit`, and arguments that lie as the plan wants them.

    Inputs and outputs of both have the same `NamedSharding`s: parameters stay where they are.

    Args:
      entries: a key of `PLANS`.
      direction: a key of `DIRECTIONS`.
      mesh: with the axes `data` and `model`.
      sizes: of the model; all are divided by the mesh.
    """
    module, args = language_model(sizes)
    plan = tp.plan(tp.trace(model_loss, module, *args[1:]), mesh, PLANS[entries])
    placed = plan.put(*args)
    wrap = DIRECTIONS[direction]
    results = plan.out_shardings if direction == "loss" else (plan.out_shardings, plan.in_shardings[0])
    ours, theirs = (
        jax.jit(wrap(loss), in_shardings=plan.in_shardings, out_shardings=results).lower(*placed).compile()
        for loss in (plan.compile(), plain.loss)
    )
    return ours, theirs, placed


def rows(rounds: int = 60, sizes: Sizes = SIZES) -> list[Row]:
    """Time and collective bytes of the loss and of a training step, for each plan.

    Args:
      rounds: turns of each timing.
      sizes: of the model.
    """
    mesh = tp.mesh(data=2, model=4)
    found: list[Row] = []
    for entries in PLANS:
        for direction in DIRECTIONS:
            ours, peer, args = compiled_pair(entries, direction, mesh, sizes)
            case = f"{direction}, {entries}"
            times = paired(lambda run=ours, a=args: run(*a), lambda run=peer, a=args: run(*a), rounds=rounds)
            target = TIME if direction == "training step" else None
            found.append(Row(f"{case}: time", times.ours * 1e3, times.peer * 1e3, "ms", target, compared=times.ratio))
            moved, xla = collective_bytes(ours, mesh), collective_bytes(peer, mesh)
            found.extend(Row(f"{case}: {kind}", moved[kind], xla[kind], "B", None) for kind in sorted(moved | xla))
            found.append(Row(f"{case}: collectives", moved.total(), xla.total(), "B", BYTES))
    return found
