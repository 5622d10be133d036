"""Looking up by number in what may be cut along the axis that is looked up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.kernels.coordinates import Searching
from combinators.numerics.locating import locate, place_after
from tapestry_jax.lifting.kernels.resized import Resized

Locate = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Whole:
    """A lookup in a whole axis.

    Attributes:
      gather: the primitive.
    """

    gather: Resized

    def __call__(self, table: Any, numbers: Any, at: Any = None) -> Any:
        """The cells that are looked up."""
        del at
        return self.gather(table, numbers)


@dataclass(frozen=True)
class OfBlock(Searching):
    """What a block of the axis has of a lookup, and zeros for the rest: the sum over blocks is the lookup.

    Attributes:
      gather: the primitive, which trusts its numbers.
      size: of the whole axis.
      fill: what numbers outside of it give; None where they are clipped into it.
      offsets: the axes of the result that are the table's.
    """

    gather: Resized
    size: int
    fill: Any
    offsets: tuple[int, ...]

    def __call__(self, table: Any, numbers: Any, at: Any) -> Any:
        """The cells that are there."""
        return self._looked_up(locate, table, numbers, at)

    @property
    def looked_up(self) -> tuple[int, range] | None:
        """Which operand holds the numbers, and for which of them there are cells, where others give NaN."""
        return (1, range(self.size)) if self.fill is not None and self.fill != self.fill else None

    @property
    def consecutive(self) -> Callable[..., Any]:
        """The same without a search."""
        return partial(self._looked_up, place_after)

    def _looked_up(self, find: Locate, table: Any, numbers: Any, at: Any) -> Any:
        wanted = numbers[..., 0]
        if wanted.dtype.itemsize < 4:  # a byte cannot be compared with 256
            wanted = wanted.astype(jnp.int32)
        inside = (wanted >= 0) & (wanted < self.size)
        wanted = jnp.clip(wanted, 0, max(self.size - 1, 0))
        if not at.shape[0]:
            place, found, is_first = jnp.zeros_like(wanted), jnp.zeros(wanted.shape, bool), jnp.asarray(False)
        else:
            place, found = find(wanted, at.astype(wanted.dtype))
            is_first = at[0] == 0
        if self.fill is not None:
            found = found & inside
        cells = self.gather(table, jnp.where(found, place, 0)[..., None])
        cells = jnp.where(jnp.expand_dims(found, self.offsets), cells, jnp.zeros((), cells.dtype))
        if self.fill is None:
            return cells
        outside = jnp.expand_dims(~inside & is_first, self.offsets)
        return jnp.where(outside, jnp.asarray(self.fill, cells.dtype), cells)
