"""Pipelines: layers over a mesh axis, microbatches handed on from stage to stage."""

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

AXIS = "stage"
TARGETS = Targets()

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def layer(x: Any, up: Any, down: Any) -> Any:
    """A residual MLP."""
    return x + matmul(gelu(matmul(x, up)), down)


def network(layers: int) -> Any:
    """Layers one after the other."""

    @tp.program("layer embed mlp, layer mlp embed, batch embed -> batch embed")
    def run(up: Any, down: Any, x: Any) -> Any:
        return tp.stack(layer, layers)(x, up, down)

    return run


def plain(up: Any, down: Any, x: Any) -> Any:
    """The same in plain JAX."""

    def one(x: Any, weights: Any) -> Any:
        return x + jax.nn.gelu(x @ weights[0]) @ weights[1], None

    return lax.scan(one, x, (up, down))[0]


def by_hand(mesh: Any, chunks: int) -> Callable[..., Any]:
    """GPipe: turn by turn each stage takes what the one before it made, and the last one's results are shared."""

    def local(up: Any, down: Any, x: Any) -> Any:
        stages, stage = lax.axis_size(AXIS), lax.axis_index(AXIS)
        onwards = [(source, source + 1) for source in range(stages - 1)]
        pieces = lax.pcast(x, AXIS, to="varying").reshape(chunks, -1, x.shape[-1])

        @jax.checkpoint
        def work(piece: Any) -> Any:
            return plain(up, down, piece)

        def turn(arrived: Any, number: Any) -> Any:
            own = lax.dynamic_index_in_dim(pieces, jnp.clip(number - stage, 0, chunks - 1), keepdims=False)
            made = work(jnp.where((stage == 0) | (number < stage), own, arrived))
            return lax.ppermute(made, AXIS, onwards), made

        _, made = lax.scan(turn, jnp.zeros_like(pieces[0]), jnp.arange(chunks + stages - 1))
        last = made[stages - 1 :].reshape(x.shape)
        return lax.psum(jnp.where(stage == stages - 1, last, 0), AXIS)

    return jax.shard_map(local, mesh=mesh, in_specs=(P(AXIS), P(AXIS), P()), out_specs=P())


def case(
    layers: int = 16, batch: int = 1024, embed: int = 256, mlp: int = 512, chunks: int = 16, dtype: Any = jnp.float32
) -> Case:
    """Two layers a stage, forward and backward."""
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(layers, embed, mlp), (layers, mlp, embed), (batch, embed)]
    scales = (embed**-0.5 / 4, mlp**-0.5 / 4, 1)
    return Case(
        f"pipeline of {layers} layers, {batch} x {embed} x {mlp}, {chunks} chunks"
        f"{', bfloat16' * (dtype == jnp.bfloat16)}, with gradients",
        network(layers),
        tuple(jax.random.normal(key, shape, dtype) * by for key, shape, by in zip(keys, shapes, scales, strict=True)),
        {"layer": AXIS, "batch": tp.chunks(chunks)},
        plain,
        lambda mesh: by_hand(mesh, chunks),
        {AXIS: 8},
        (P(AXIS), P(AXIS), P()),
        P(),
        gradients=2,
    )


def rows(rounds: int = 10) -> list[Row]:
    """Eight stages."""
    return rows_of(case(), TARGETS, rounds)
