"""Gradient accumulation: the batch over a mesh axis, each device's share in chunks, one reduction a step."""

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
ON_MESH = Targets(automatic=1 / 1.3, collectives={"all-reduce": 1})
ON_ONE_DEVICE = Targets(temporaries=1 / 7)

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
mean = tp.fold(tp.aggregators.Mean(), "batch out -> ()", name="mean")


@tp.program("embed mlp, mlp out, batch embed, batch out -> ()")
def loss(w1, w2, x, y):
    error = matmul(gelu(matmul(x, w1)), w2) - y
    return mean(error**2)


def plain(w1: Any, w2: Any, x: Any, y: Any) -> Any:
    """The same in plain JAX: of the whole batch, or of a part."""
    return jnp.mean((jax.nn.gelu(x @ w1) @ w2 - y) ** 2)


def strided(chunks: int) -> Callable[..., Any]:
    """The mean over parts that take every `chunks`-th row, so that each lies on all devices."""

    def run(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        parts = [jnp.swapaxes(a.reshape(-1, chunks, a.shape[-1]), 0, 1) for a in (x, y)]
        return _mean_of_parts(w1, w2, parts)

    return run


def by_hand(mesh: Any, chunks: int) -> Callable[..., Any]:
    """Value and gradients of each device's parts are summed there, then once over the mesh.

    A function with gradients of its own: those of the parameters are made in the forward loop.
    """

    def local(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        varying = lax.pcast((w1, w2), AXIS, to="varying")

        def part(total: Any, at: Any) -> Any:
            size = x.shape[0] // chunks
            rows = [lax.dynamic_slice_in_dim(a, at * size, size) for a in (x, y)]
            return jax.tree.map(jnp.add, total, jax.value_and_grad(plain, (0, 1))(*varying, *rows)), None

        start = jax.tree.map(jnp.zeros_like, (varying[0][0, 0], varying))
        total, _ = lax.scan(part, start, jnp.arange(chunks))
        return jax.tree.map(lambda each: each / (chunks * lax.axis_size(AXIS)), lax.psum(total, AXIS))

    places = (P(), P(), P(AXIS), P(AXIS))
    step = jax.shard_map(local, mesh=mesh, in_specs=places, out_specs=(P(), (P(), P())))

    @jax.custom_vjp
    def run(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        return step(w1, w2, x, y)[0]

    run.defvjp(step, lambda gradients, cotangent: (*(cotangent * each for each in gradients), None, None))
    return run


def case(
    devices: int = 8, chunks: int = 8, batch: int = 4096, embed: int = 128, mlp: int = 512, out: int | None = None
) -> Case:
    """A step of an MLP whose batch is cut over the devices, then in time."""
    out = embed if out is None else out
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(embed, mlp), (mlp, out), (batch, embed), (batch, out)]
    scales = (embed**-0.5, mlp**-0.5, 1, 1)
    on_mesh = devices > 1
    return Case(
        f"gradient accumulation {batch} x {embed} x {mlp}, {chunks} chunks, {devices} device{'s' * on_mesh}",
        loss,
        tuple(jax.random.normal(key, shape) * by for key, shape, by in zip(keys, shapes, scales, strict=True)),
        {"batch": (AXIS, tp.chunks(chunks))} if on_mesh else {"batch": tp.chunks(chunks)},
        strided(chunks) if on_mesh else plain,
        lambda mesh: by_hand(mesh, chunks),
        {AXIS: devices},
        (P(), P(), P(AXIS), P(AXIS)),
        P(),
        gradients=2,
    )


def rows(rounds: int = 20) -> list[Row]:
    """Eight devices beside a strided reshape; one device beside the whole batch at once."""
    return [*rows_of(case(), ON_MESH, rounds), *rows_of(case(devices=1), ON_ONE_DEVICE, rounds)]


def _mean_of_parts(w1: Any, w2: Any, parts: list[Any]) -> Any:
    @jax.checkpoint
    def part(total: Any, rows: Any) -> Any:
        return total + plain(w1, w2, *rows), None

    return lax.scan(part, jnp.zeros(()), parts)[0] / parts[0].shape[0]
