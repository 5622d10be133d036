"""The words of the mini-language in which programs are drawn; each knows itself as an arrow and in plain jnp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp

from combinators import aggregators, monoids
from combinators.arrows.arrow import Arrow
from combinators.leaves.fold import fold
from combinators.leaves.map import Map
from combinators.leaves.rearrange import rearrange
from combinators.leaves.scan import Scan

Names = tuple[str, ...]


@final
@dataclass(frozen=True)
class Word:
    """A kind of step.

    Attributes:
      arrow: (names of the axes, position of the dimension that the word names, size it gives) -> the step.
      in_jnp: (array, position, size) -> array: the same in plain jnp, for comparison.
      does: what becomes of the dimension: `keep`, `fold` (it goes) or `new` (it comes, at the end).
      takes: whether the word names a dimension.
    """

    arrow: Callable[[Names, int, int], Arrow[Any, Any]]
    in_jnp: Callable[[Any, int, int], Any]
    does: str = "keep"
    takes: bool = True


@final
@dataclass(frozen=True)
class Along:
    """A function of arrays along one axis, as a kernel that compares equal to its like."""

    function: Callable[..., Any]
    axis: int

    def __call__(self, block: Any) -> Any:
        """Apply the function along the axis."""
        return self.function(block, axis=self.axis)


def smoothed(block: Any, axis: int) -> Any:
    """Weigh neighbours 1, 2, 1; two cells fewer come out."""
    at = partial(jax.lax.slice_in_dim, block, axis=axis)
    n = block.shape[axis]
    return (at(0, n - 2) + 2 * at(1, n - 1) + at(2, n)) / 4


def spread(block: Any, coordinates: Any) -> Any:
    """Add coordinates along a new last axis."""
    return block[..., None] + coordinates.astype(block.dtype)


def _elementwise(function: Callable[..., Any]) -> Word:
    return Word(lambda names, axis, size: Map(function), lambda x, axis, size: function(x), takes=False)


def _softmax(names: Names, axis: int, size: int) -> Arrow[Any, Any]:
    axes = " ".join(f"[{name}]" if i == axis else name for i, name in enumerate(names))
    return Map(Along(jax.nn.softmax, axis), f"{axes} -> {axes}")


def _stencil(names: Names, axis: int, size: int) -> Arrow[Any, Any]:
    read = " ".join(f"({name}+[w]-1)" if i == axis else name for i, name in enumerate(names))
    return Map(Along(smoothed, axis), f"{read} -> {' '.join(names)}", sizes={"w": 3}, boundary="edge")


def _smoothed_whole(x: Any, axis: int, size: int) -> Any:
    widths = [(1, 1) if i == axis else (0, 0) for i in range(x.ndim)]
    return smoothed(jnp.pad(x, widths, mode="edge"), axis)


def _scan(names: Names, axis: int, size: int, reverse: bool = False) -> Arrow[Any, Any]:
    axes = " ".join(names)
    return Scan(monoids.Sum, f"{axes} -> {axes}", over=names[axis], reverse=reverse)


def _fold(make: Callable[[], Any]) -> Callable[[Names, int, int], Arrow[Any, Any]]:
    def arrow(names: Names, axis: int, size: int) -> Arrow[Any, Any]:
        kept = [name for i, name in enumerate(names) if i != axis]
        return fold(make(), f"{' '.join(names)} -> {' '.join(kept)}")

    return arrow


def _spread(names: Names, axis: int, size: int) -> Arrow[Any, Any]:
    *old, new = names
    return Map(spread, f"{' '.join(old)}, @{new} -> {' '.join(names)}", sizes={new: size})


def _turned(names: Names, axis: int, size: int) -> Arrow[Any, Any]:
    return rearrange(f"{' '.join(names)} -> {' '.join((*names[1:], names[0]))}")


WORDS: dict[str, Word] = {
    "tanh": _elementwise(jnp.tanh),
    "negative": _elementwise(jnp.negative),
    "sin": _elementwise(jnp.sin),
    "softmax": Word(_softmax, lambda x, axis, size: jax.nn.softmax(x, axis)),
    "smooth": Word(_stencil, _smoothed_whole),
    "cumsum": Word(_scan, lambda x, axis, size: jnp.cumsum(x, axis)),
    "sufsum": Word(
        partial(_scan, reverse=True), lambda x, axis, size: jnp.flip(jnp.cumsum(jnp.flip(x, axis), axis), axis)
    ),
    "turn": Word(_turned, lambda x, axis, size: jnp.moveaxis(x, 0, -1), takes=False),
    "sum": Word(_fold(aggregators.Sum), lambda x, axis, size: jnp.sum(x, axis), "fold"),
    "mean": Word(_fold(aggregators.Mean), lambda x, axis, size: jnp.mean(x, axis), "fold"),
    "max": Word(_fold(aggregators.Max), lambda x, axis, size: jnp.max(x, axis), "fold"),
    "logsumexp": Word(_fold(aggregators.LogSumExp), lambda x, axis, size: jax.nn.logsumexp(x, axis), "fold"),
    "spread": Word(_spread, lambda x, axis, size: spread(x, jnp.arange(size)), "new"),
}
"""Every word by its name."""


def after(word: str, names: Sequence[str], dim: str | None) -> Names:
    """The names of the axes after a word."""
    if word == "turn":
        return (*names[1:], *names[:1])
    match WORDS[word].does:
        case "fold":
            return tuple(name for name in names if name != dim)
        case "new":
            assert dim is not None
            return (*names, dim)
        case _:
            return tuple(names)
