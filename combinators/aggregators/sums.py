"""A number near the mean, for sums of deviations in one pass over memory."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

STRIDE, RUN = 4096, 64


def origin_near(xs: Any) -> Any:
    """Find a number near the mean without reading everything.

    Deviations from it can be added in one pass. It is the mean of one run of 64 elements in every 4096 (of all elements
    where they are few), so that its square distance from the mean is at most 64 times the variance whatever the data,
    and far less than the variance for data in no adverse order.

    Args:
      xs: floats `(n, ...)`.

    Returns:
      Shape `(...)`; 0 for nothing; the elements themselves where all are equal, so that nothing deviates from it. No
      derivative flows through it: what it is used for must not depend on it.
    """
    size = xs.shape[0]
    rows = size // STRIDE
    if rows >= RUN:
        sample = xs[: rows * STRIDE].reshape(rows, STRIDE, *xs.shape[1:])[:, :RUN]
        return _between(jnp.sum(sample, axis=(0, 1)) / (rows * RUN), sample, True, (0, 1))
    return _between(jnp.sum(xs, axis=0) / max(size, 1), xs, True, (0,))


def weighted_origin(weights: Any, xs: Any, count: Any) -> Any:
    """The mean of weighted elements, likewise; 0 for nothing.

    Args:
      weights: at least 0, `(n, ...)` with as many axes as `xs`.
      xs: floats `(n, ...)`.
      count: the total of the weights.
    """
    mean = jnp.sum(weights * xs, axis=0) / jnp.where(count == 0, 1, count).astype(xs.dtype)
    return _between(mean, xs, weights > 0, (0,))


def _between(mean: Any, xs: Any, kept: Any, axes: tuple[int, ...]) -> Any:
    """A mean lies between the least and the greatest element, however it was rounded."""
    low = jnp.min(xs, axis=axes, where=kept, initial=jnp.inf)
    high = jnp.max(xs, axis=axes, where=kept, initial=-jnp.inf)
    return lax.stop_gradient(jnp.where(low <= high, jnp.clip(mean, low, high), mean))
