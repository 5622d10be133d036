"""What calling a compiled plan costs beside calling a function under `jax.jit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from benchmarks.models import PLANS, Sizes, language_model, model_loss
from benchmarks.row import Row
from benchmarks.timing import paired

TARGET = 20.0


def tiny(mesh: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """A plan that does next to nothing, the same under `jax.jit`, and placed arguments."""
    add = tp.Map(jnp.add)
    x = jnp.ones((8, 4))
    plan = tp.plan(tp.trace(add, *(tp.TensorType({"row": 8, "col": 4}, x.dtype),) * 2), mesh, {"row": "data"})
    peer = jax.jit(jnp.add, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    return plan.compile(), peer, plan.put(x, x)


def small_model(mesh: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """The loss of a small transformer with all its parameters as arguments; the peer is the same program."""
    module, args = language_model(Sizes(layers=1, embed=16, heads=4, vocab=16, batch=2, seq=8))
    plan = tp.plan(tp.trace(model_loss, module, *args[1:]), mesh, PLANS["batch, heads, mlp"])
    run = plan.compile()
    peer = jax.jit(lambda *a: run(*a), in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    return run, peer, plan.put(*args)


# One device: with more, running them on a few cores takes far longer, and varies more, than the call.
CASES = {"two arguments": (tiny, 500), "a transformer's arguments": (small_model, 50)}


def rows(rounds: int = 100) -> list[Row]:
    """Microseconds of one call, and what ours takes more.

    Args:
      rounds: turns of each timing.
    """
    found: list[Row] = []
    mesh = tp.mesh(data=1, model=1)
    for case, (make, calls) in CASES.items():
        run, peer, args = make(mesh)
        times = paired(lambda f=run, a=args: f(*a), lambda f=peer, a=args: f(*a), rounds=rounds, calls=calls)
        shown = (times.ours * 1e6, times.peer * 1e6, "us", TARGET, "difference", times.difference * 1e6)
        found.append(Row(f"call of a compiled plan, {case}", *shown))
    return found
