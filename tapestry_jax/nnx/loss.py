"""Losses; every dimension of them can be cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators import aggregators
from combinators.arguments import is_whole, read_number
from combinators.arrows.program import Program, program
from combinators.errors import GraphError, message, spelt
from combinators.leaves.einsum import einsum
from combinators.leaves.fold import fold
from combinators.leaves.index import index
from combinators.leaves.map import Map
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
      targets: integers with the leading dimensions; outside the vocabulary they give NaN, -1 as well
        (`cross_entropy_with` takes one that does not count).

    Returns:
      A scalar.

    Raises:
      SignatureError: when targets are not integers or have another shape than the logits' leading dimensions.
    """
    normalizer, target = _parts(logits, targets)
    losses = normalizer - target
    dims = _dims(losses)
    return fold(aggregators.Mean(), f"{dims} -> ()", name="mean")(losses) if dims else losses


def cross_entropy_with(
    *, label_smoothing: float = 0.0, ignore_index: int | None = None, z_loss: float = 0.0
) -> Program:
    """A `cross_entropy` with options: `tp.nnx.cross_entropy_with(label_smoothing=0.1)(logits, targets)`.

        logsumexp(logits) - (1 - a) logits[target] - a mean(logits) + z logsumexp(logits)^2

    Args:
      label_smoothing: the share `a` of a target that is spread over the whole vocabulary, as in optax and torch.
      ignore_index: a target that does not count; the mean is that of the others, NaN where there are none. Logits
        beside it that are no numbers leave the loss as it is; their gradient may be NaN, as that of `cross_entropy`.
      z_loss: the weight `z` of the squared normalizer.

    Returns:
      An arrow from logits and targets to a scalar.

    Raises:
      GraphError: when an option is not what it should be.
    """
    own = "of cross_entropy_with"
    share, weight = read_number(label_smoothing, f"label_smoothing= {own}"), read_number(z_loss, f"z_loss= {own}")
    if not 0 <= share <= 1 or weight < 0:
        details = (f"label_smoothing is {spelt(label_smoothing, 40)}, z_loss {spelt(z_loss, 40)}",)
        remedy = "Pass a share from 0 to 1, and a weight from 0 on."
        raise GraphError(message(f"no such options {own}", *details, remedy=remedy))
    if ignore_index is not None and not (is_whole(ignore_index) and -(2**31) <= ignore_index < 2**31):
        details = ("expected an integer of 32 bits, or None", f"got {spelt(ignore_index, 40)}")
        raise GraphError(message(f"ignore_index= {own} is no target", *details, remedy="Pass one, such as -100."))
    ignored = None if ignore_index is None else int(ignore_index)

    @program("... vocab, ... -> ()")
    def cross_entropy(logits: Value, targets: Value) -> Value:
        check_integers("cross_entropy", "targets", targets)
        counts = None if ignored is None else targets != ignored
        # What does not count asks for the first entry, which there always is.
        normalizer, target = _parts(logits, targets if counts is None else targets * counts)
        losses = normalizer - (1 - share) * target
        dims = _dims(losses)
        if share:
            losses = losses - share * fold(aggregators.Mean(), f"{dims} v -> {dims}", name="mean_logit")(logits)
        losses = losses + weight * normalizer * normalizer if weight else losses
        if not dims:
            return losses if counts is None else Map(jnp.where)(counts, losses, jnp.nan)
        if counts is None:
            return fold(aggregators.Mean(), f"{dims} -> ()", name="mean")(losses)
        return fold(aggregators.Mean(), f"{dims}, {dims} -> ()", name="mean")(losses, counts)

    return cross_entropy


@program("..., ... -> ()")
def mean_squared_error(predictions: Value, targets: Value) -> Value:
    """Mean of the squared differences of all cells, in at least 32 bits.

    Args:
      predictions: any dimensions.
      targets: the same dimensions.

    Returns:
      A scalar.
    """
    squares = Map(squared_error)(predictions, targets)
    dims = _dims(squares)
    return fold(aggregators.Mean(), f"{dims} -> ()", name="mean")(squares) if dims else squares


@program("pair embed, pair embed, -> ()")
def contrastive(left: Value, right: Value, scale: Value) -> Value:
    """Mean cross-entropy by which each vector of a pair is told from all others of the batch, both ways, as in CLIP.

    The logits are `scale * left . right` of all pairs; vectors are normalised by who calls. The whole batch stands
    against the whole batch on every mesh, and its second copy, `<name of the pairs>_other`, can be cut as well.

    Args:
      left: `(pair, embed)`.
      right: `(pair, embed)`.
      scale: a scalar.

    Returns:
      A scalar.

    Source: Radford et al. 2021, figure 3.
    """
    pair = str(left.settle().names[0])
    other = f"{pair}_other"
    logits = einsum("a e, b e -> a b")(left, right.rename(**{pair: other})) * scale
    there = cross_entropy(logits, index(pair, logits))
    return (there + cross_entropy(logits.T, index(other, logits))) / 2


def squared_error(prediction: Any, target: Any) -> Any:
    """The square of a difference, in at least 32 bits."""
    return jnp.square(_wide(prediction) - _wide(target))


def _dims(losses: Value) -> str:
    return " ".join(f"d{axis}" for axis in range(losses.ndim))


def _parts(logits: Value, targets: Value) -> tuple[Value, Value]:
    """The normalizer of every token and the logit of its target."""
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
    return normalizer(logits), target(logits, targets)


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
