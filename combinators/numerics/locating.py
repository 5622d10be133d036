"""Finding numbers among the coordinates of a block."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax


def locate(wanted: Any, at: Any) -> tuple[Any, Any]:
    """Find numbers in a block's coordinates.

    Args:
      wanted: integers, any shape.
      at: int32 `(n,)`, ascending, with gaps allowed, `n > 0`.

    Returns:
      For each number its position in `at` (any valid one where it is absent), and whether it is there.
    """
    place = jnp.zeros_like(wanted)
    # A binary search, unrolled: it needs no loop inside the loops and shard_maps that a plan makes around it.
    for bit in reversed(range((at.shape[0] - 1).bit_length())):
        probe = place + 2**bit
        within = jnp.minimum(probe, at.shape[0] - 1)
        place = jnp.where((probe == within) & (_read(at, within) <= wanted), probe, place)
    return place, _read(at, place) == wanted


_ONE_BY_ONE = lax.GatherDimensionNumbers((), (0,), (0,))


def _read(at: Any, places: Any) -> Any:
    """`at[places]`, all of them within: indexing traces twenty times longer than what it comes to."""
    return lax.gather(at, places[..., None], _ONE_BY_ONE, (1,), mode="promise_in_bounds")


def place_after(wanted: Any, at: Any) -> tuple[Any, Any]:
    """As `locate`, of coordinates that follow one another."""
    place = wanted - at[0]
    return place, (place >= 0) & (place < at.shape[0])
