"""The loss of a language model; every dimension of it can be cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators import aggregators
from combinators.arrows.program import program
from combinators.leaves.fold import fold
from combinators.leaves.reduce import Reduce
from combinators.monoids import LogSumExp, Sum
from combinators.monoids.logsumexp import logsumexp_value
from combinators.recording.value import Value
from tapestry_jax.nnx.projections.embed import check_integers
from tapestry_jax.nnx.rows import Entry, EntryOfBlock


@program("... vocab, ... -> ()")
def cross_entropy(logits: Value, targets: Value) -> Value:
    """Mean over all tokens of `logsumexp(logits) - logits[target]`, in at least 32 bits.

    The vocabulary is folded with log-sum-exp, and the target's logit found by its coordinate, so that a plan may cut
    the vocabulary: in time, together with the head before it, the logits never exist as a whole.

    Where a row has an infinite logit, or none but minus infinity, its loss is infinite or NaN under every plan. Its
    gradient is NaN uncut, as that of `jax.nn.logsumexp`; where the vocabulary is cut it may be numbers that say
    nothing.

    Args:
      logits: any leading dimensions, then the vocabulary.
      targets: integers with the leading dimensions; outside the vocabulary they give NaN.

    Returns:
      A scalar.

    Raises:
      SignatureError: when targets are not integers or have another shape than the logits' leading dimensions.
    """
    check_integers("cross_entropy", "targets", targets)
    normalizer = Reduce(
        logsumexp_of_block,
        "... v -> ...",
        LogSumExp,
        present=logsumexp_value,
        dense=logsumexp_of_rows,
        name="logsumexp",
    )
    target = Reduce(EntryOfBlock(logits.shape[-1]), "... v, ..., @v -> ...", Sum, dense=Entry(), name="target")
    losses = normalizer(logits) - target(logits, targets)
    dims = " ".join(f"d{axis}" for axis in range(losses.ndim))
    return fold(aggregators.Mean(), f"{dims} -> ()", name="mean")(losses) if dims else losses


@jax.custom_jvp
def logsumexp_of_block(logits: Any) -> Any:
    """The state `(maximum, sum of exponentials scaled by it)` along the last axis."""
    top, weights = _weights(logits)
    return top, jnp.sum(weights, axis=-1)


@logsumexp_of_block.defjvp
def _logsumexp_of_block_tangent(primals: Any, tangents: Any) -> Any:
    """The derivative by the weights that were summed: no mask of the logits stands in it, which XLA would keep."""
    (logits,), (change,) = primals, tangents
    top, weights = _weights(logits)
    by = jnp.sum(weights * _wide(change), axis=-1)
    return (top, jnp.sum(weights, axis=-1)), (jnp.zeros_like(top), by)


def _weights(logits: Any) -> Any:
    """The maximum of every row, and the exponentials relative to it, which are numbers beside infinities too."""
    logits = _wide(logits)
    top = lax.stop_gradient(jnp.max(logits, axis=-1, initial=-jnp.inf))
    largest = jnp.finfo(logits.dtype).max
    return top, jnp.exp(jnp.minimum(logits, largest) - jnp.clip(top, -largest, largest)[..., None])


def logsumexp_of_rows(logits: Any) -> Any:
    """The logarithm of the sum of exponentials along the last axis."""
    return jax.nn.logsumexp(_wide(logits), axis=-1)


def _wide(logits: Any) -> Any:
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
