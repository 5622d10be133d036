"""The aggregator of a stable `log(sum(exp(x)))`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.aggregator import Aggregator
from combinators.monoids.logsumexp import log_ratio, logsumexp_value


def LogSumExp() -> Aggregator:
    """Find `log(sum(exp(x)))` without overflow.

    Returns:
      An aggregator of one real input to a float of at least 32 bits: `-inf`, with gradient 0, for nothing or only
      `-inf`; `inf` where an element is; NaN where one is.

    Source: Milakov and Gimelshein 2018, section 3.
    """
    return Aggregator(
        lift_logsumexp,
        monoids.LogSumExp,
        logsumexp_value,
        lift_many=logsumexp_many,
        reference=reference_logsumexp,
        name="LogSumExp",
    )


def logsumexp_many(xs: Any) -> Any:
    """Find the maximum along the leading axis and the sum scaled by it.

    The maximum is a reference point that the value does not depend on; all of the gradient flows through the sum.

    Args:
      xs: real array `(n, ...)`.

    Returns:
      `(m, s)`.
    """
    xs = xs.astype(jnp.promote_types(xs.dtype, jnp.float32))
    top = lax.stop_gradient(jnp.max(xs, axis=0, initial=-jnp.inf))
    return top, jnp.sum(jnp.exp(log_ratio(xs, top)), axis=0)


def lift_logsumexp(x: Any) -> Any:
    """Make the state of one element; `-inf` gives the identity itself."""
    return logsumexp_many(jnp.asarray(x)[None])


def reference_logsumexp(xs: Any) -> Any:
    """Add logarithms pairwise in NumPy, in float64."""
    return np.logaddexp.reduce(np.asarray(xs, np.float64), axis=0)
