"""The aggregator of attention: a mean weighted by the exponentials of scores."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.moments import LiftOne, real
from combinators.monoids.attention import attention_logsumexp, attention_output
from combinators.monoids.logsumexp import finite_or_zero


def SoftmaxMean() -> Aggregator:
    """Average values with the softmax of their scores as weights: attention of one query, or pooling by attention.

        mean = sum of exp(score) value / sum of exp(score),    logsumexp = log(sum of exp(score))

    It takes two inputs, scores and values, whose elements may have axes of their own:
    `fold(SoftmaxMean(), "key, key [channel] -> ")`.

    Returns:
      An aggregator to a dictionary of `mean`, with the axes of a value, and `logsumexp`, with those of a score; floats
      of at least 32 bits. An element whose score is `-inf` is left out, whatever its value; of nothing the mean is 0,
      as for a query that sees no key, and `logsumexp` is `-inf`, both with gradient 0.

    Source: Milakov and Gimelshein 2018; Dao et al. 2022, section 3.1.
    """
    return Aggregator(
        LiftOne(softmax_many),
        monoids.AttentionState,
        present_softmax_mean,
        lift_many=softmax_many,
        reference=reference_softmax_mean,
        name="SoftmaxMean",
    )


def softmax_many(scores: Any, values: Any) -> Any:
    """Find `(m, l, o)` of scores `(n, ...)` and values `(n, ..., *own)`: the maximum, and two sums scaled by it."""
    scores, values = real("SoftmaxMean", scores), real("SoftmaxMean", values)
    top = lax.stop_gradient(jnp.max(scores, axis=0, initial=-jnp.inf))
    weights = jnp.exp(scores - finite_or_zero(top))
    own = jnp.reshape(weights, weights.shape + (1,) * (values.ndim - weights.ndim))
    out = jnp.sum(own * jnp.where(own == 0, 0, values), axis=0).astype(values.dtype)
    return top, jnp.sum(weights, axis=0), out


def present_softmax_mean(state: Any) -> Any:
    """Present mean and log-sum-exp by name."""
    return {"mean": attention_output(state), "logsumexp": attention_logsumexp(state)}


def reference_softmax_mean(scores: Any, values: Any) -> Any:
    """Average in NumPy, in float64."""
    scores, values = np.asarray(scores, np.float64), np.asarray(values, np.float64)
    top = np.max(scores, axis=0, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    own = weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
    total = own.sum(axis=0)
    mean = np.sum(own * np.where(own == 0, 0, values), axis=0) / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return {"mean": mean, "logsumexp": np.log(weights.sum(axis=0)) + np.where(np.isfinite(top), top, 0)}
