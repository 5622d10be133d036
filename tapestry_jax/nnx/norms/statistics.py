"""Means and variances along some axes of a tensor, as folds: what is normalised may be cut."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.leaves.reduce import Reduce
from combinators.merging.monoid import Monoid
from combinators.monoids import Mean, Moments
from combinators.recording.value import Value


@dataclass(frozen=True)
class CentralSums:
    """Count, mean and sum of squared deviations of a block.

    Attributes:
      axes: that are folded.
      group: consecutive cells of the last axis that belong together, where it is not folded whole; else 0.
    """

    axes: tuple[int, ...]
    group: int = 0
    merged_by: ClassVar[tuple[Monoid, ...]] = (Moments,)

    def __call__(self, x: Any) -> tuple[Any, Any, Any]:
        """Three arrays with the axes that are left, in at least 32 bits."""
        wide, axes = _apart(x, self.axes, self.group)
        cells = math.prod(wide.shape[axis] for axis in axes)
        mean = jnp.sum(wide, axis=axes, keepdims=True) / max(cells, 1)
        squares = jnp.sum(lax.square(wide - mean), axis=axes)
        return jnp.full(squares.shape, cells, jnp.int32), jnp.squeeze(mean, axes), squares


@dataclass(frozen=True)
class MeanAndVariance:
    """Mean and variance of a whole tensor in one pass: `mean(x^2) - mean(x)^2`, as in Flax.

    Attributes:
      axes: that are folded.
      group: consecutive cells of the last axis that belong together, where it is not folded whole; else 0.
    """

    axes: tuple[int, ...]
    group: int = 0

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Two arrays with the axes that are left, in at least 32 bits."""
        wide, axes = _apart(x, self.axes, self.group)
        # Squares come first, so that their gradient is added last, as in Flax. What XLA for CPUs fuses depends on it:
        # with it before that of the mean, the residual stream was computed again in each fusion that read it.
        squares = lax.square(wide)
        mean = jnp.mean(wide, axis=axes)
        # Rounding can make the difference negative.
        return mean, jnp.maximum(0.0, jnp.mean(squares, axis=axes) - lax.square(mean))


@dataclass(frozen=True)
class Squares:
    """Sum of squares of a block, and how many there are.

    Attributes:
      axes: that are folded.
    """

    axes: tuple[int, ...]

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Two arrays with the axes that are left, in at least 32 bits."""
        wide, axes = _apart(x, self.axes, 0)
        total = jnp.sum(lax.square(wide), axis=axes)
        return total, jnp.full(total.shape, math.prod(wide.shape[axis] for axis in axes), jnp.int32)


@dataclass(frozen=True)
class MeanSquare:
    """Mean of the squares of a whole tensor.

    Attributes:
      axes: that are folded.
    """

    axes: tuple[int, ...]

    def __call__(self, x: Any) -> Any:
        """The axes that are left, in at least 32 bits."""
        wide, axes = _apart(x, self.axes, 0)
        return jnp.mean(lax.square(wide), axis=axes)


def variance_of(state: Any) -> tuple[Any, Any]:
    """Present count, mean and central sum as mean and variance."""
    count, mean, squares = state
    return mean, squares / jnp.maximum(count, 1).astype(squares.dtype)


def mean_of(state: Any) -> Any:
    """Present a total and a count as their mean."""
    total, count = state
    return total / jnp.maximum(count, 1).astype(total.dtype)


def statistics(x: Value, kept: Collection[int], *, groups: int = 0, fast: bool = True) -> tuple[Value, Value]:
    """Mean and variance along the axes of `x` that are not kept.

    Args:
      x: the tensor.
      kept: the axes that means and variances carry.
      groups: of the cells of the last axis, each with its own mean; 0 folds this axis whole or keeps it.
      fast: whether those of what is uncut are found in one pass, as Flax does unless it is told not to.
    """
    return _moments(x.ndim, tuple(sorted(kept)), groups, x.shape[-1] // groups if groups else 0, fast)(x)


def mean_square(x: Value, kept: Collection[int]) -> Value:
    """Mean of squares along the axes of `x` that are not kept."""
    return _mean_square(x.ndim, tuple(sorted(kept)))(x)


# The layers of a model repeat the same few: what is known of an operation is not found again for its equal.
@lru_cache(maxsize=256)
def _moments(rank: int, kept: tuple[int, ...], groups: int, group: int, fast: bool) -> Reduce:
    folded = tuple(axis for axis in range(rank) if axis not in kept and not (groups and axis == rank - 1))
    operand, result = axes_of(rank, kept, grouped=groups > 0)
    text = f"{operand} -> {result}, {result}"
    options: dict[str, Any] = {"name": "moments"}
    if fast:
        options["dense"] = MeanAndVariance(folded, group)
    if groups:
        options["sizes"] = {"groups": groups}
    return Reduce(CentralSums(folded, group), text, Moments, present=variance_of, **options)


@lru_cache(maxsize=256)
def _mean_square(rank: int, kept: tuple[int, ...]) -> Reduce:
    folded = tuple(axis for axis in range(rank) if axis not in kept)
    operand, result = axes_of(rank, kept)
    kernel, dense = Squares(folded), MeanSquare(folded)
    return Reduce(kernel, f"{operand} -> {result}", Mean, present=mean_of, dense=dense, name="mean_square")


def axes_of(rank: int, kept: Collection[int], *, grouped: bool = False) -> tuple[str, str]:
    """The axes of a tensor and of its statistics, as signatures write them."""
    names = [f"d{axis}" for axis in range(rank)]
    result = [names[axis] for axis in sorted(kept)] + ["groups"] * grouped
    if grouped:
        names[-1] = "(groups [member])"
    return " ".join(names), " ".join(result) or "()"


def _apart(x: Any, axes: tuple[int, ...], group: int) -> tuple[Any, tuple[int, ...]]:
    """A block in at least 32 bits with an axis for the members of a group, which is folded as well."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if not group:
        return wide, axes
    return jnp.reshape(wide, (*x.shape[:-1], x.shape[-1] // group, group)), (*axes, x.ndim)
