"""The resultant length of angles: how far they agree. It may be cut and merged anywhere.

Source: Mardia, Jupp 2000, Directional Statistics, section 2.3.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp


def vector(angle: Any) -> Any:
    """The unit vector of an angle in radians."""
    return jnp.cos(angle), jnp.sin(angle)


def vectors(angles: Any) -> Any:
    """The sum of the unit vectors of many angles."""
    return jnp.sum(jnp.cos(angles), axis=0), jnp.sum(jnp.sin(angles), axis=0)


def length(state: Any) -> Any:
    """How long the sum is: the number of angles where all agree, 0 where they cancel.

    The length, and not the angle: at a sum of 0 no angle is better than another, and its slope is not finite. The
    square root has no slope there either, so 0 is taken out before it.
    """
    squared = state[0] ** 2 + state[1] ** 2
    some = squared > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, squared, 1)), 0)


def length_in_numpy(angles: Any) -> Any:
    """The same by complex numbers, in float64."""
    return np.abs(np.sum(np.exp(1j * angles.astype(np.float64)), axis=0))


RESULTANT_LENGTH = tp.Aggregator(
    vector,
    tp.Monoid((0.0, 0.0), jnp.add, commutative=True, inverse=jnp.negative, name="UnitVectors"),
    length,
    lift_many=vectors,
    reference=length_in_numpy,
    name="ResultantLength",
)
