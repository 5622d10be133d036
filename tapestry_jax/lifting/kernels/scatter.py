"""Scattering on blocks: its parameters hold no sizes, but a program, which is that of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators import monoids
from combinators.frozen import dataclass
from combinators.kernels.coordinates import Searching
from combinators.numerics.locating import locate, place_after
from tapestry_jax.lifting.kernels.lookup import Locate

SCATTERS = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-sub": getattr(lax, "scatter_sub", None),
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}
"""Primitive to function."""

FOLDS = {
    "scatter-add": monoids.Sum,
    "scatter-sub": monoids.Sum,
    "scatter-min": monoids.Min,
    "scatter-max": monoids.Max,
}
"""Primitive to what merges results of some of the updates. (JAX derives products of single updates alone.)"""


@dataclass(frozen=True)
class Scatter:
    """One of `SCATTERS`.

    Attributes:
      primitive: its name.
      numbers: which axis is which.
      mode: what numbers outside do.
      flags: whether the numbers are sorted, and whether each is there once.
    """

    primitive: str
    numbers: Any
    mode: Any
    flags: tuple[bool, bool]

    def __call__(self, operand: Any, indices: Any, updates: Any) -> Any:
        """The operand with the updates in it."""
        is_sorted, is_unique = self.flags
        function: Any = SCATTERS[self.primitive]
        return function(
            operand,
            indices,
            updates,
            self.numbers,
            indices_are_sorted=is_sorted,
            unique_indices=is_unique,
            mode=self.mode,
        )


@dataclass(frozen=True)
class OfUpdates(Searching):
    """What some of the updates make of a block of the axis that they are numbered along.

    One block of the updates has the operand as well; the others begin with what changes nothing, so that the monoid of
    the primitive merges them.

    Attributes:
      scatter: the primitive.
      axis: that may be cut, along which updates are numbered; None where they are numbered along several.
      size: of that axis.
      folded: how many dimensions of updates may be cut, whose coordinates come last.
    """

    scatter: Scatter
    axis: int | None
    size: int
    folded: int

    def __call__(self, operand: Any, indices: Any, updates: Any, *at: Any) -> Any:
        """The operand, or what changes nothing, with these updates in it."""
        return self._scattered(locate, operand, indices, updates, *at)

    @property
    def consecutive(self) -> Callable[..., Any]:
        """The same without a search."""
        return partial(self._scattered, place_after)

    @property
    def whole(self) -> OfUpdates:
        """The same of all updates at once, in which JAX's own promises hold."""
        return replace(self, folded=0)

    def _scattered(self, find: Locate, operand: Any, indices: Any, updates: Any, *at: Any) -> Any:
        if not operand.size:
            return operand
        begun, scatter = operand, self.scatter
        if self.folded:
            nothing = jnp.asarray(neutral(scatter.primitive, operand.dtype), operand.dtype)
            firsts = [each[:1] == 0 for each in at[len(at) - self.folded :]]
            if any(not first.shape[0] for first in firsts):
                return jnp.full_like(operand, nothing)
            begun = jnp.where(jnp.concatenate(firsts).all(), operand, nothing)
            # Copies fill up the last block, so that what is promised of numbers does not hold in it.
            scatter = replace(scatter, flags=(False, False))
        if self.axis is None or operand.shape[self.axis] == self.size:
            return scatter(begun, indices, updates)
        scatter = replace(scatter, flags=(False, scatter.flags[1]))
        return self._in_block(scatter, self.axis, find, begun, indices, updates, at[0])

    def _in_block(
        self, scatter: Scatter, axis: int, find: Locate, operand: Any, indices: Any, updates: Any, at: Any
    ) -> Any:
        """Updates that are elsewhere go to cells behind the block, which are dropped.

        One cell takes all of them. Where each number is promised to be there once, each has a cell of its own, so that
        the promise stays: only with it does JAX derive products, and transpose what replaces (the derivative of
        somebody's `custom_jvp` may hold `tangent.at[0].set(0)`).

        Places outside of an array are never used: where the array is a slice of another one, XLA's rewriting of a
        single update to a slice finds them in that one.
        """
        block = operand.shape[axis]
        place, found = self._placed(find, indices[..., 0], at)
        cells = found.size if scatter.flags[1] else 1
        elsewhere = block + (jnp.arange(cells).reshape(found.shape) if scatter.flags[1] else 0)
        behind = [(0, cells * (each == axis), 0) for each in range(operand.ndim)]
        longer = lax.pad(operand, jnp.zeros((), operand.dtype), behind)
        scattered = scatter(longer, jnp.where(found, place, elsewhere)[..., None], updates)
        return lax.slice_in_dim(scattered, 0, block, axis=axis)

    def _placed(self, find: Locate, wanted: Any, at: Any) -> tuple[Any, Any]:
        """The place of each number in a block, and whether it is there."""
        if wanted.dtype.itemsize < 4:  # a byte cannot be compared with 256
            wanted = wanted.astype(jnp.int32)
        inside = (wanted >= 0) & (wanted < self.size)
        wanted = jnp.clip(wanted, 0, self.size - 1)
        place, found = find(wanted, at.astype(wanted.dtype))
        # Copies of the last coordinate fill up a block; a search may find one of them, which nobody reads.
        place = jnp.minimum(place, (at < at[-1]).sum(dtype=place.dtype))
        return place, found if self.scatter.mode == lax.GatherScatterMode.CLIP else found & inside


def neutral(primitive: str, dtype: Any) -> Any:
    """What an update by this primitive leaves as it is, and what it is left as; extrema are those of integers."""
    if primitive in ("scatter-add", "scatter-sub"):
        return 0
    known = jnp.iinfo(dtype)
    return known.min if primitive == "scatter-max" else known.max
