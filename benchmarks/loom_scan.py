"""The parallel scan of a linear recurrence, such as of a state-space model: time over a mesh axis."""

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
DEVICES = 8


def hidden(state: Any) -> Any:
    """What `h = a h + b` has come to, from 0."""
    return state[1]


def compose(first: Any, then: Any) -> Any:
    """`h = a h + b`, one after the other."""
    return then[0] * first[0], then[0] * first[1] + then[1]


@tp.program("time d, time d -> time d")
def recurrence(decay, values):
    """`h[t] = decay[t] h[t - 1] + values[t]`, elementwise."""
    return tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=hidden)(decay, values)


def automatic(decay: Any, values: Any) -> Any:
    """The scan that JAX has for it."""
    return lax.associative_scan(compose, (decay, values))[1]


def by_hand(mesh: Any) -> Callable[..., Any]:
    """Every device scans its own steps, learns what those before it come to, and goes on from there."""

    def local(decay: Any, values: Any) -> Any:
        product, state = lax.associative_scan(compose, (decay, values))
        place = lax.axis_index(AXIS)

        def received(total: Any, distance: int) -> Any:
            pairs = [(at, at + distance) for at in range(DEVICES - distance)]
            moved = [lax.ppermute(leaf, AXIS, pairs) for leaf in total]
            # Where nothing arrives, nothing has happened: h = 1 h + 0.
            return jnp.where(place >= distance, moved[0], 1), moved[1]

        before = received((product[-1], state[-1]), 1)
        for distance in (1, 2, 4):
            before = compose(received(before, distance), before)
        return product * before[1] + state

    return jax.shard_map(local, mesh=mesh, in_specs=(P(AXIS), P(AXIS)), out_specs=P(AXIS))


def case(length: int = 1 << 18, width: int = 8) -> Case:
    """A recurrence of `length` steps, of `width` entries each."""
    decay = jax.nn.sigmoid(jax.random.normal(jax.random.key(0), (length, width)))
    values = jax.random.normal(jax.random.key(1), (length, width))
    return Case(
        f"scan of a recurrence {length} x {width}",
        recurrence,
        (decay, values),
        {"time": AXIS},
        automatic,
        by_hand,
        {AXIS: DEVICES},
        (P(AXIS), P(AXIS)),
        P(AXIS),
    )


def rows(rounds: int = 20) -> list[Row]:
    """The totals of the devices are all there is to send: 64 bytes each, in four rounds."""
    targets = Targets(automatic=1 / 5, collectives={"collective-permute": 8}, sent=1024)
    return rows_of(case(), targets, rounds)
