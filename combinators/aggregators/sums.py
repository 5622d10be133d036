"""A number near the mean, for sums of deviations in one pass over memory."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

STRIDE, RUN, RUNS = 4096, 64, 16


def origin_near(xs: Any) -> Any:
    """Find a number near the mean without reading everything.

    Deviations from it can be added in one pass. It is the mean of one run of 64 elements in every 4096 (on TPUs of
    longer runs, as many elements in all; of all where they are few), so that its square distance from the mean is at
    most 64 times the variance whatever the data, and far less than the variance for data in no adverse order.

    Args:
      xs: floats `(n, ...)`.

    Returns:
      Shape `(...)`; 0 for nothing; the elements themselves where all are equal, so that nothing deviates from it. No
      derivative flows through it: what it is used for must not depend on it.
    """
    return _clipped(*_looked_at(xs))


def unit_of(xs: Any) -> Any:
    """A power of two near the spread of a sample, in which deviations and their powers are of ordinary size.

    Args:
      xs: floats `(n, ...)`.

    Returns:
      Shape `(...)`; 1 where there is no spread, or none that is finite. Without derivative.
    """
    _, low, high = _looked_at(lax.stop_gradient(xs))
    # Halved first, so that it does not overflow. Of nothing the ends are infinite.
    return _power_below(jnp.where(low <= high, high / 2 - low / 2, 0))


def _looked_at(xs: Any) -> tuple[Any, Any, Any]:
    """Mean, least and greatest of as many elements as a run in every stride has; of all where they are few.

    Compilers for TPUs copy the whole input to cut it into strides, so that fewer and longer runs are taken there.
    """
    if xs.shape[0] // STRIDE < RUN:
        return _statistics(xs, (0,))
    return lax.platform_dependent(xs, tpu=of_long_runs, default=of_short_runs)


def of_short_runs(xs: Any) -> tuple[Any, Any, Any]:
    """Of the first elements of every stride."""
    rows = xs.shape[0] // STRIDE
    return _statistics(xs[: rows * STRIDE].reshape(rows, STRIDE, *xs.shape[1:])[:, :RUN], (0, 1))


def of_long_runs(xs: Any) -> tuple[Any, Any, Any]:
    """Of as many elements in all, from the middle of each of `RUNS` parts."""
    part, size = xs.shape[0] // RUNS, xs.shape[0] // STRIDE * RUN // RUNS
    starts = [number * part + (part - size) // 2 for number in range(RUNS)]
    return _statistics(jnp.concatenate([lax.slice_in_dim(xs, at, at + size) for at in starts]), (0,))


def _statistics(sample: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    low, high = (f(sample, axis=axes, initial=end) for f, end in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf)))
    return _plain_mean(sample, axes), low, high


def _plain_mean(sample: Any, axes: tuple[int, ...]) -> Any:
    count = math.prod(sample.shape[axis] for axis in axes)
    # By a power of two first, which rounds nothing: the total of numbers that have a mean may overflow.
    scale = 2.0 ** -max(count - 1, 0).bit_length()
    return jnp.sum(sample * scale, axis=axes) / (max(count, 1) * scale)


def _power_below(spread: Any) -> Any:
    bits, exponent = {4: (jnp.int32, 0xFF << 23), 8: (jnp.int64, 0x7FF << 52)}[spread.dtype.itemsize]
    power = lax.bitcast_convert_type(lax.bitcast_convert_type(spread, bits) & exponent, spread.dtype)
    # Its inverse has to be a float as well.
    limits = jnp.finfo(spread.dtype)
    least, greatest = float(2.0 ** (limits.minexp + 20)), float(2.0 ** (limits.maxexp - 20))
    return jnp.where(power == 0, 1, jnp.clip(power, least, greatest)).astype(spread.dtype)


def weighted_origin(weights: Any, xs: Any, count: Any) -> Any:
    """The mean of weighted elements, likewise; 0 for nothing.

    Args:
      weights: at least 0, `(n, ...)` with as many axes as `xs`.
      xs: floats `(n, ...)`.
      count: the total of the weights.
    """
    # Shares of all, since a weight times an element may overflow where the mean does not.
    mean = jnp.sum(weights / jnp.where(count == 0, 1, count).astype(xs.dtype) * xs, axis=0)
    low = jnp.min(xs, axis=0, where=weights > 0, initial=jnp.inf)
    high = jnp.max(xs, axis=0, where=weights > 0, initial=-jnp.inf)
    return _clipped(mean, low, high)


def _clipped(mean: Any, low: Any, high: Any) -> Any:
    """A mean lies between the least and the greatest element, however it was rounded."""
    return lax.stop_gradient(jnp.where(low <= high, jnp.clip(mean, low, high), mean))
