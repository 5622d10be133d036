"""FlashAttention: the keys in time, on one device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

import tapestry_jax as tp
from benchmarks.loom import Case, Targets
from benchmarks.loom import rows as rows_of
from benchmarks.loom_attention import attention
from benchmarks.row import Row

TARGETS = Targets(automatic=1 / 2, temporaries=1 / 18)


def naive(q: Any, k: Any, v: Any) -> Any:
    """Attention whose scores exist as a whole."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return jnp.einsum("hqk,hke->hqe", weights / weights.sum(-1, keepdims=True), v)


def chunked(q: Any, k: Any, v: Any, chunks: int) -> Any:
    """A checkpointed scan over chunks of keys, the total maximum first.

    With the maximum known, and no derivative through it, what is carried is a plain sum, of which nothing is stored.
    """
    q = q * q.shape[-1] ** -0.5
    size = k.shape[1] // chunks

    def piece(a: Any, at: Any) -> Any:
        return lax.dynamic_slice_in_dim(a, at * size, size, axis=1)

    def highest(top: Any, at: Any) -> Any:
        return jnp.maximum(top, jnp.einsum("hqd,hkd->hqk", q, piece(k, at)).max(-1)), None

    @jax.checkpoint
    def add(sums: Any, at: Any) -> Any:
        weights = jnp.exp(jnp.einsum("hqd,hkd->hqk", q, piece(k, at)) - top[..., None])
        return (sums[0] + weights.sum(-1), sums[1] + jnp.einsum("hqk,hke->hqe", weights, piece(v, at))), None

    none = jnp.zeros_like(q[..., 0])
    top = lax.stop_gradient(lax.scan(highest, none - jnp.inf, jnp.arange(chunks))[0])
    start = (none, jnp.zeros_like(q, shape=(*q.shape[:-1], v.shape[-1])))
    (total, output), _ = lax.scan(add, start, jnp.arange(chunks))
    return output / total[..., None]


def case(heads: int = 4, seq: int = 4096, d: int = 64, chunks: int = 16) -> Case:
    """Attention on one device, forward and backward."""
    return Case(
        f"attention {heads} x {seq} x {d}, keys in {chunks} chunks, with gradients",
        attention,
        tuple(jax.random.normal(key, (heads, seq, d)) for key in jax.random.split(jax.random.key(0), 3)),
        {"keys": tp.chunks(chunks)},
        naive,
        lambda mesh: lambda q, k, v: chunked(q, k, v, chunks),
        {"data": 1},
        (P(),) * 3,
        P(),
        gradients=3,
    )


def rows(rounds: int = 5) -> list[Row]:
    """Forward and backward."""
    return rows_of(case(), TARGETS, rounds)
