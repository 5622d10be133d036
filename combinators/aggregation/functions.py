"""The functions that aggregators are put together from.

They are frozen dataclasses, not closures, so that equal aggregators compare equal and can be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast, final

import jax
import numpy as np

from combinators.aggregation.inputs import count_inputs, most_inputs
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid


@final
@dataclass(frozen=True)
class LiftEach:
    """Lift every element, then merge the states by a balanced tree."""

    lift: Callable[..., Any]
    monoid: Monoid

    def __call__(self, *xs: Any) -> Any:
        """Lift elements along the leading axis and merge them."""
        return self.monoid.fold_stacked(jax.vmap(self.lift)(*xs))


@final
@dataclass(frozen=True)
class Fork:
    """Apply several functions to the same arguments, or each to the first of them that it needs."""

    functions: tuple[Callable[..., Any], ...]
    counts: tuple[int, ...] | None = None

    @property
    def inputs(self) -> int | None:
        """How many inputs it needs; None where that is not known."""
        needed = self.counts or tuple(map(count_inputs, self.functions))
        return None if None in needed else max(cast("tuple[int, ...]", needed))

    @property
    def most_inputs(self) -> int | None:
        """How many inputs it can take; None where that is not known. Further ones none of the functions would see."""
        if self.counts is not None:
            return max(self.counts)
        return min((most for most in map(most_inputs, self.functions) if most is not None), default=None)

    def __call__(self, *args: Any) -> Any:
        """Return one result a function."""
        counts = self.counts or (len(args),) * len(self.functions)
        return tuple(function(*args[:count]) for function, count in zip(self.functions, counts, strict=True))


@final
@dataclass(frozen=True)
class Each:
    """Apply the i-th function to the i-th part of a tuple."""

    functions: tuple[Callable[..., Any], ...]

    def __call__(self, parts: Any) -> Any:
        """Return one result a part."""
        return tuple(function(part) for function, part in zip(self.functions, parts, strict=True))


@final
@dataclass(frozen=True)
class After:
    """Apply `outer` to what `inner` returns: the arguments where it is a tuple, the one argument where it is not."""

    outer: Callable[..., Any]
    inner: Callable[..., Any]

    @property
    def inputs(self) -> int | None:
        """How many inputs it needs; None where that is not known."""
        return count_inputs(self.inner)

    @property
    def most_inputs(self) -> int | None:
        """How many inputs it can take; None where that is not known."""
        return most_inputs(self.inner)

    def __call__(self, *args: Any) -> Any:
        """Return `outer(inner(*args))`."""
        middle = self.inner(*args)
        return self.outer(*cast("tuple[Any, ...]", middle)) if isinstance(middle, tuple) else self.outer(middle)


@final
@dataclass(frozen=True)
class Then:
    """Apply `second` to the one result of `first`, whatever its type."""

    first: Callable[..., Any]
    second: Callable[[Any], Any]

    def __call__(self, *args: Any) -> Any:
        """Return `second(first(*args))`."""
        return self.second(self.first(*args))


@final
@dataclass(frozen=True)
class Mapped:
    """Map a function of one element over the leading axis."""

    function: Callable[..., Any]
    of_cells: ClassVar = ("function",)

    def __call__(self, *xs: Any) -> Any:
        """Return the mapped result."""
        return jax.vmap(self.function)(*xs)


@final
@dataclass(frozen=True)
class OnHost:
    """Turn the arrays that a function returns into NumPy's."""

    function: Callable[..., Any]

    def __call__(self, *xs: Any) -> Any:
        """Return NumPy arrays."""
        return jax.tree.map(np.asarray, self.function(*xs))
