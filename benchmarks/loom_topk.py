"""The largest of very many: a fold with the top-k monoid over a mesh axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

import tapestry_jax as tp
from benchmarks.loom import Case, Targets
from benchmarks.loom import rows as rows_of
from benchmarks.row import Row

AXIS = "data"


def program(k: int) -> Any:
    """The k largest and where they lie."""
    fold = tp.fold(tp.aggregators.TopK(k), "row, @row -> ")

    @tp.program("row -> k, k")
    def largest(x):
        best = fold(x)
        return best["value"], best["index"]

    return largest


def by_hand(mesh: Any, k: int) -> Callable[..., Any]:
    """Every device finds its own k largest; all of these are gathered, and the largest of them are chosen."""

    def local(x: Any) -> Any:
        value, index = lax.top_k(x, k)
        index += lax.axis_index(AXIS) * x.shape[0]
        value, index = (lax.all_gather(leaf, AXIS, tiled=True, to="invarying") for leaf in (value, index))
        # Ties keep the order of the devices, which is that of the indices.
        value, at = lax.top_k(value, k)
        return value, jnp.take(index, at)

    return jax.shard_map(local, mesh=mesh, in_specs=P(AXIS), out_specs=(P(), P()))


def case(length: int = 1 << 20, k: int = 64) -> Case:
    """The `k` largest of `length` numbers."""
    return Case(
        f"top {k} of {length:,}",
        program(k),
        (jax.random.normal(jax.random.key(0), (length,)),),
        {"row": AXIS},
        lambda x: tuple(lax.top_k(x, k)),
        lambda mesh: by_hand(mesh, k),
        {AXIS: 8},
        (P(AXIS),),
        (P(), P()),
    )


def rows(rounds: int = 40) -> list[Row]:
    """The k values and indices of every device are all there is to send."""
    return rows_of(case(), Targets(automatic=1 / 3, sent=16 * 1024), rounds)
