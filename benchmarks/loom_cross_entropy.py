"""Fused linear cross-entropy, on one device: the vocabulary or the rows in time, so that the logits never exist."""

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
BY_ROWS = Targets(automatic=1.0, temporaries=1 / 4)

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


@tp.program("token embed, embed vocab, token -> ()")
def loss(x, w, targets):
    return tp.nnx.cross_entropy(matmul(x, w), targets)


def naive(x: Any, w: Any, targets: Any) -> Any:
    """The mean cross-entropy of logits that exist as a whole, in 32 bits."""
    logits = (x @ w).astype(jnp.float32)
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


def by_rows(x: Any, w: Any, targets: Any, chunks: int) -> Any:
    """A scan over chunks of the rows that makes gradients on the way: a function with gradients of its own."""
    size = x.shape[0] // chunks

    def step(x: Any, w: Any, targets: Any) -> tuple[Any, tuple[Any, Any]]:
        def part(total: tuple[Any, Any], at: Any) -> tuple[tuple[Any, Any], Any]:
            own, wanted = (lax.dynamic_slice_in_dim(a, at * size, size) for a in (x, targets))
            value, (by_own, by_w) = jax.value_and_grad(naive, (0, 1))(own, w, wanted)
            return (total[0] + value, total[1] + by_w), by_own

        start = (jnp.zeros((), jnp.float32), jnp.zeros_like(w))
        (value, by_w), by_x = lax.scan(part, start, jnp.arange(chunks))
        return value / chunks, (by_x.reshape(x.shape) / chunks, by_w / chunks)

    @jax.custom_vjp
    def run(x: Any, w: Any, targets: Any) -> Any:
        return step(x, w, targets)[0]

    run.defvjp(step, lambda made, cotangent: (*((cotangent * each).astype(each.dtype) for each in made), None))
    return run(x, w, targets)


def case(
    tokens: int = 4096,
    embed: int = 512,
    vocab: int = 32768,
    chunks: int = 32,
    over: str = "vocab",
    dtype: Any = jnp.float32,
) -> Case:
    """The loss of a head and its gradients by activations and weights.

    Args:
      tokens: rows.
      embed: what is summed over for a logit.
      vocab: logits of a row.
      chunks: turns of the loop.
      over: `"vocab"`, least memory and a fourth product, or `"token"`, three products and logits of a chunk of rows.
      dtype: of activations and weights.
    """
    keys = jax.random.split(jax.random.key(0), 3)
    peer = {"vocab": chunked, "token": by_rows}[over]
    kind, what = "" if dtype == jnp.float32 else f", {jnp.dtype(dtype).name}", "" if over == "vocab" else " of rows"
    return Case(
        f"linear cross-entropy {tokens} x {embed} x {vocab}, {chunks} chunks{what}{kind}, with gradients",
        loss,
        (
            jax.random.normal(keys[0], (tokens, embed)).astype(dtype),
            (jax.random.normal(keys[1], (embed, vocab)) * embed**-0.5).astype(dtype),
            jax.random.randint(keys[2], (tokens,), 0, vocab),
        ),
        {over: tp.chunks(chunks)},
        naive,
        lambda mesh: lambda x, w, targets: peer(x, w, targets, chunks),
        {"data": 1},
        (P(),) * 3,
        P(),
        gradients=2,
    )


def rows(rounds: int = 3) -> list[Row]:
    """Forward and backward: the vocabulary in chunks, and the rows."""
    return [*rows_of(case(), TARGETS, rounds), *rows_of(case(chunks=16, over="token"), BY_ROWS, rounds)]
