"""Monoids of whole numbers bit by bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.merging.monoid import Monoid


def every_bit(cell_type: Any) -> Any:
    """Fill a cell with ones: the identity of `and`."""
    return jax.tree.map(lambda leaf: np.invert(np.zeros((), leaf.dtype)), cell_type)


BITS_OR = Monoid(0, jnp.bitwise_or, commutative=True, idempotent=True, name="or of bits")
BITS_AND = Monoid(every_bit, jnp.bitwise_and, commutative=True, idempotent=True, name="and of bits")
BITS_XOR = Monoid(0, jnp.bitwise_xor, commutative=True, name="xor of bits")
