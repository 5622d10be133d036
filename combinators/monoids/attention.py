"""The monoid of attention: softmax-weighted sums that merge."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.merging.frame import Frame
from combinators.merging.monoid import Monoid
from combinators.monoids.logsumexp import finite_or_zero, log_ratio, logsumexp_value

# State: (m, l, o): the largest score, the sum of exp(score - m), and the sum of exp(score - m) * value.


def combine_attention(left: Any, right: Any) -> Any:
    """Merge two attention states: rescale both to the larger maximum and add.

    Args:
      left: `(m, l, o)`; `o` has the axes of `m` and then its own.
      right: `(m, l, o)`.

    Returns:
      `(m, l, o)` of both together.
    """
    (top1, norm1, out1), (top2, norm2, out2) = left, right
    top = jnp.maximum(top1, top2)
    scale1, scale2 = jnp.exp(log_ratio(top1, top)), jnp.exp(log_ratio(top2, top))
    out = out1 * _over(scale1, out1) + out2 * _over(scale2, out2)
    return top, (norm1 * scale1 + norm2 * scale2).astype(norm1.dtype), out.astype(out1.dtype)


def attention_output(state: Any) -> Any:
    """Present a state as the attention output `o / l`.

    Args:
      state: `(m, l, o)`.

    Returns:
      The output, of the shape and dtype of `o`; 0, with gradient 0, where every key was masked.
    """
    _, norm, out = state
    norm = _over(norm, out)
    # The norm is the 0 that is wanted: a constant would be an array beside a loop whose state begins with the same one.
    return jnp.where(norm == 0, lax.stop_gradient(norm), out / jnp.where(norm == 0, 1, norm)).astype(out.dtype)


def attention_state(output: Any, logsumexp: Any) -> Any:
    """Make a state of what a fused attention kernel gives for a block of keys: its output and its log-sum-exp.

    With it such a kernel takes part in folds over a mesh, in rings and in chunks: `tp.Dense(kernel, gives="state")`.
    Both need their derivatives, and the log-sum-exp its digits: one between 8 and 16 in bfloat16 weighs a block wrong
    by up to 3%.

    Args:
      output: the softmax-weighted values, with the axes of `logsumexp` and then its own.
      logsumexp: of the scaled scores; `-inf` where every key was masked.

    Returns:
      `(m, l, o)` with `m` the log-sum-exp and `l` 1; the identity where every key was masked.
    """
    seen = logsumexp > -jnp.inf
    norm = jnp.where(seen, 1, 0).astype(logsumexp.dtype)
    return logsumexp, norm, jnp.where(_over(seen, output), output, 0)


def attention_logsumexp(state: Any) -> Any:
    """Present a state as the log-sum-exp of its scores, `m + log(l)`.

    Args:
      state: `(m, l, o)`.

    Returns:
      The logarithm, of the shape of `m`; `-inf` where every key was masked.
    """
    return logsumexp_value(state[:2])


def maximum(state: Any) -> Any:
    """Summarise a state by its largest score."""
    return state[0]


def express(state: Any, reference: Any) -> Any:
    """Express a state as the addends `l exp(m - F)` and `o exp(m - F)`."""
    top, norm, out = state
    scale = jnp.exp(top - reference)
    return (norm * scale).astype(norm.dtype), (out * _over(scale, out)).astype(out.dtype)


def restore(reference: Any, addends: Any) -> Any:
    """Turn the sums of the addends back into `(m, l, o)`."""
    norm, out = addends
    return jnp.where(norm == 0, -jnp.inf, reference), norm, out


def _over(scale: Any, out: Any) -> Any:
    """Give a scale the trailing axes of the output."""
    return jnp.reshape(scale, jnp.shape(scale) + (1,) * (jnp.ndim(out) - jnp.ndim(scale)))


AttentionState: Monoid = Monoid(
    (-jnp.inf, 0, 0),
    combine_attention,
    commutative=True,
    frame=Frame(maximum, "max", finite_or_zero, express, restore),
    name="AttentionState",
)
"""State `(m, l, o)` of one query: `m` and `l` scalars, `o` with its own trailing axis. Presented by `attention_output`.

With scores `x_k` and values `v_k`: `m = max x_k`, `l = sum exp(x_k - m)`, `o = sum exp(x_k - m) v_k`. A fully masked
query stays at the identity. Frame as in `LogSumExp`. Source: Milakov and Gimelshein 2018; Dao et al. 2022, section 3.1.
"""
