"""Values that a mask hides in part, where whoever reads the mask makes it anew."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Axes = tuple[int, ...]


def hide(values: Any, seen: Any, value: float, beside: Any) -> Any:
    """`jnp.where(seen, values, value)`, of which nothing is kept beside a loop, and no mask for the derivative.

    Where JAX differentiates a loop it moves out of it whatever does not depend on the turn. Of a causal mask these are
    the mask of every score, and an array of the value that stands in the place of those not seen: 5 bytes for each
    score, alive for as long as the loop runs, and read in every turn. Here both depend on `beside`, by nothing.

    Args:
      values: floats.
      seen: which of them stay; as many axes, each as long as theirs or 1.
      value: what stands in the place of the others.
      beside: what the values depend on, and what is another in each turn; as many axes, each as long as theirs or 1.
    """
    own = tuple(axis for axis, size in enumerate(seen.shape) if size != 1)
    rest = tuple(axis for axis, size in enumerate(seen.shape) if size == 1)
    return _hidden(value, own, values, jnp.squeeze(seen, rest), lax.stop_gradient(beside))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _hidden(value: float, own: Axes, values: Any, seen: Any, beside: Any) -> Any:
    # XLA knows what is left of a number and nothing; JAX does not, and takes it to be another in each turn.
    nothing = beside.astype(jnp.int32) & 0
    there = lax.broadcast_in_dim(seen, values.shape, own) & jnp.broadcast_to(nothing == 0, values.shape)
    other = jnp.asarray(value, values.dtype) + nothing.astype(values.dtype)
    return lax.select(there, values, jnp.broadcast_to(other, values.shape))


@_hidden.defjvp
def _(value: float, own: Axes, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return _hidden(value, own, *primals), _of_seen(own, tangents[0], primals[1])


@partial(jax.checkpoint, static_argnums=(0,), prevent_cse=False)
def _of_seen(own: Axes, change: Any, seen: Any) -> Any:
    """What is seen of a change, from the mask as it came: spread out it would be kept."""
    return lax.select(lax.broadcast_in_dim(seen, change.shape, own), change, jnp.zeros_like(change))
