"""Fused linear cross-entropy: the vocabulary in time, so that the logits never exist, on one device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

import tapestry_jax as tp
from benchmarks.loom import Case, Targets
from benchmarks.loom import rows as rows_of
from benchmarks.row import Row

TARGETS = Targets(automatic=1.15, temporaries=1 / 15)

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


@tp.program("token embed, embed vocab, token -> ()")
def loss(x, w, targets):
    return tp.nnx.cross_entropy(matmul(x, w), targets)


def naive(x: Any, w: Any, targets: Any) -> Any:
    """The mean cross-entropy of logits that exist as a whole."""
    logits = x @ w
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def chunked(x: Any, w: Any, targets: Any, chunks: int) -> Any:
    """A checkpointed scan over chunks of the vocabulary, with a running maximum that takes no derivative."""
    size = w.shape[1] // chunks

    def logits_of(at: Any) -> Any:
        return x @ lax.dynamic_slice_in_dim(w, at * size, size, axis=1)

    def highest(top: Any, at: Any) -> Any:
        return jnp.maximum(top, logits_of(at).max(-1)), None

    @jax.checkpoint
    def add(sums: Any, at: Any) -> Any:
        total, chosen = sums
        logits, own = logits_of(at), targets - at * size
        here = jnp.take_along_axis(logits, jnp.clip(own, 0, size - 1)[:, None], axis=1)[:, 0]
        chosen = chosen + jnp.where((own >= 0) & (own < size), here, 0)
        return (total + jnp.exp(logits - top[:, None]).sum(-1), chosen), None

    none = jnp.zeros_like(x[:, 0])
    top = lax.stop_gradient(lax.scan(highest, none - jnp.inf, jnp.arange(chunks))[0])
    (total, chosen), _ = lax.scan(add, (none, none), jnp.arange(chunks))
    return jnp.mean(jnp.log(total) + top - chosen)


def case(tokens: int = 4096, embed: int = 512, vocab: int = 32768, chunks: int = 32) -> Case:
    """The loss of a head and its gradients by activations and weights."""
    keys = jax.random.split(jax.random.key(0), 3)
    return Case(
        f"linear cross-entropy {tokens} x {embed} x {vocab}, {chunks} chunks, with gradients",
        loss,
        (
            jax.random.normal(keys[0], (tokens, embed)),
            jax.random.normal(keys[1], (embed, vocab)) * embed**-0.5,
            jax.random.randint(keys[2], (tokens,), 0, vocab),
        ),
        {"vocab": tp.chunks(chunks)},
        naive,
        lambda mesh: lambda x, w, targets: chunked(x, w, targets, chunks),
        {"data": 1},
        (P(),) * 3,
        P(),
        gradients=2,
    )


def rows(rounds: int = 3) -> list[Row]:
    """Forward and backward."""
    return rows_of(case(), TARGETS, rounds)
