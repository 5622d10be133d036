"""Halo exchange, and communication-avoiding stencils: rows over a mesh axis, exchanged every `depth` steps."""

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


def diffuse(block: Any) -> Any:
    """One explicit step of the heat equation: a block with a rim of one cell to what is inside the rim."""
    inner = block[1:-1, 1:-1]
    around = block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]
    return inner + 0.1 * (around - 4 * inner)


def program(steps: int, boundary: str) -> Any:
    """The steps, one after the other."""
    step = tp.Map(diffuse, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary=boundary)

    @tp.program("y x -> y x")
    def simulate(u):
        return tp.iterate(step, steps)(u)

    return simulate


def heat(height: int = 2048, width: int = 2048, steps: int = 50) -> Case:
    """A plate with a cold rim; its rows lie on eight devices and are exchanged every step."""
    return Case(
        f"heat {height} x {width}, {steps} steps, depth 1",
        program(steps, "zero"),
        (jax.random.normal(jax.random.key(0), (height, width)),),
        {"y": AXIS},
        lambda u: lax.fori_loop(0, steps, lambda _, u: diffuse(jnp.pad(u, 1)), u),
        lambda mesh: heat_by_hand(mesh, steps),
        {AXIS: 8},
        (P(AXIS),),
        P(AXIS),
    )


def deep(height: int = 256, width: int = 64, steps: int = 32, depth: int = 16) -> Case:
    """A periodic grid whose rows are exchanged every `depth` steps, `depth` of them at once; it divides `steps`."""
    return Case(
        f"stencil {height} x {width}, {steps} steps, depth {depth}",
        program(steps, "periodic"),
        (jax.random.normal(jax.random.key(0), (height, width)),),
        {"y": (AXIS, tp.halo(depth=depth))},
        lambda u: lax.fori_loop(0, steps, lambda _, u: rolled(u), u),
        lambda mesh: deep_by_hand(mesh, steps, depth),
        {AXIS: 8},
        (P(AXIS),),
        P(AXIS),
    )


def rolled(u: Any) -> Any:
    """A step on a periodic grid, as XLA partitions it best."""
    around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
    return u + 0.1 * (around - 4 * u)


def heat_by_hand(mesh: Any, steps: int) -> Callable[..., Any]:
    """Each device takes a row from both neighbours, every step; at the ends nothing arrives, which is zero."""

    def one(_: Any, u: Any) -> Any:
        devices = lax.axis_size(AXIS)
        above = lax.ppermute(u[-1:], AXIS, [(at, at + 1) for at in range(devices - 1)])
        below = lax.ppermute(u[:1], AXIS, [(at + 1, at) for at in range(devices - 1)])
        return diffuse(_once(jnp.pad(jnp.concatenate([above, u, below]), ((0, 0), (1, 1)))))

    return _over_rows(lambda u: lax.fori_loop(0, steps, one, u), mesh)


def deep_by_hand(mesh: Any, steps: int, depth: int) -> Callable[..., Any]:
    """Each device takes `depth` rows from both neighbours, then computes as many steps on fewer and fewer rows."""

    def burst(_: Any, u: Any) -> Any:
        devices = lax.axis_size(AXIS)
        above = lax.ppermute(u[-depth:], AXIS, [(at, (at + 1) % devices) for at in range(devices)])
        below = lax.ppermute(u[:depth], AXIS, [((at + 1) % devices, at) for at in range(devices)])
        u = jnp.concatenate([above, u, below])
        for _ in range(depth):
            u = diffuse(_once(jnp.concatenate([u[:, -1:], u, u[:, :1]], axis=1)))
        return u

    return _over_rows(lambda u: lax.fori_loop(0, steps // depth, burst, u), mesh)


def rows(rounds: int = 10) -> list[Row]:
    """Both cases; the rows that are sent are all there is to send."""
    every_step = Targets(automatic=1 / 1.8, collectives={"collective-permute": 100}, sent=100 * 2048 * 4)
    seldom = Targets(automatic=1 / 4, collectives={"collective-permute": 4}, sent=4 * 16 * 64 * 4)
    return [*rows_of(heat(), every_step, rounds), *rows_of(deep(), seldom, 10 * rounds)]


def _once(u: Any) -> Any:
    """Put a block together before it is used: fused, XLA chooses in every cell it reads, and repeats earlier steps."""
    return lax.optimization_barrier(u)


def _over_rows(function: Callable[..., Any], mesh: Any) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS))
