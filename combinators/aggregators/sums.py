"""Sums of several arrays in one pass over memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

DEPTH, LANES = 16, 1024
"""Rows that one step of the first level adds, and how many such sums stand side by side.

Measured on a CPU with 16.8M float32 (64 MB) and four sums of powers: 4 ms, where four separate sums take 50 ms and one
reduction in a single level 31 ms, with an error of 3e-2 where this one has 1e-7.
"""


@jax.custom_jvp
def sum_together(*arrays: Any) -> tuple[Any, ...]:
    """Add several arrays along their leading axes.

    XLA fuses what the arrays are computed from into the sums, and reads it once: a reduction of several operands is one
    loop. Long axes are added in two levels, which is what keeps the rounding error small.

    Args:
      arrays: floats, all of one shape `(n, ...)` and one dtype.

    Returns:
      One sum of shape `(...)` for each array.
    """
    shape, dtype = arrays[0].shape, arrays[0].dtype
    blocks = shape[0] // (DEPTH * LANES)
    if blocks == 0:
        return tuple(jnp.sum(array, axis=0) for array in arrays)
    whole = blocks * DEPTH * LANES
    heads = tuple(array[:whole].reshape(blocks, DEPTH, LANES, *shape[1:]) for array in arrays)
    partial = lax.reduce(heads, (jnp.zeros((), dtype),) * len(arrays), _add, (1,))
    return tuple(
        jnp.sum(head, axis=(0, 1)) + jnp.sum(array[whole:], axis=0) for head, array in zip(partial, arrays, strict=True)
    )


@sum_together.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # A sum is linear. Derivatives take the plain one, which transposes to a broadcast.
    return sum_together(*primals), tuple(jnp.sum(tangent, axis=0) for tangent in tangents)


def _add(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


STRIDE, RUN = 4096, 64


def origin_near(xs: Any) -> Any:
    """Find a number near the mean without reading everything.

    Deviations from it can be added in one pass. It is the mean of one run of 64 elements in every 4096 (of all elements
    where they are few), so that its square distance from the mean is at most 64 times the variance whatever the data,
    and far less than the variance for data in no adverse order.

    Args:
      xs: floats `(n, ...)`.

    Returns:
      Shape `(...)`; 0 for nothing. No derivative flows through it: what it is used for must not depend on it.
    """
    size = xs.shape[0]
    rows = size // STRIDE
    if rows >= RUN:
        sample = xs[: rows * STRIDE].reshape(rows, STRIDE, *xs.shape[1:])[:, :RUN]
        return lax.stop_gradient(jnp.sum(sample, axis=(0, 1)) / (rows * RUN))
    return lax.stop_gradient(jnp.sum(xs, axis=0) / max(size, 1))
