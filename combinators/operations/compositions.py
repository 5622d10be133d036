"""Composed axes of blocks, `(h d)`: row-major, and only the outermost part is ever cut; the kernel that moves them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.index_space.axis import Axis

Groups = tuple[tuple[str, ...], ...]
"""For each axis of a tensor its dimensions, the outermost first."""


def groups(axes: Sequence[Axis]) -> Groups:
    """The dimensions of axes without expressions; none for `1`."""
    return tuple(tuple(term.name for term in axis.terms) for axis in axes)


def inner_dims(axes: Groups) -> set[str]:
    """The dimensions that are not outermost, which are never cut, so that their sizes may stand in a kernel."""
    return {dim for dims in axes for dim in dims[1:]}


def block_sizes(block: Any, axes: Groups, inner: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the dimensions in a block: the outermost part of a composition takes what the block leaves."""
    sizes = dict(inner)
    for dims, size in zip(axes, block.shape, strict=True):
        if dims and dims[0] not in sizes:
            rest = math.prod(sizes[dim] for dim in dims[1:])
            sizes[dims[0]] = size // rest if rest else 0
    return sizes


def split(block: Any, axes: Groups, sizes: Mapping[str, int]) -> Any:
    """The block with an axis for each dimension."""
    return block.reshape([sizes[dim] for dims in axes for dim in dims])


@dataclass(frozen=True)
class Rearrangement:
    """Split, repeat, transpose, compose. The outermost part of a composition takes the size that the block leaves.

    Attributes:
      source: for each operand axis its dimensions, outermost first.
      target: the same for the result.
      inner: sizes of the dimensions that are not outermost, and therefore never cut.
      repeated: the dimensions of the result alone whose coordinates are operands: a block has as many of them.
    """

    source: Groups
    target: Groups
    inner: tuple[tuple[str, int], ...]
    repeated: tuple[str, ...] = ()

    def __call__(self, block: Any, *coordinates: Any) -> Any:
        """Rearrange a block of any size."""
        sizes = block_sizes(block, self.source, dict(self.inner))
        sizes |= {dim: at.shape[0] for dim, at in zip(self.repeated, coordinates, strict=True)}
        flat = [dim for dims in self.source for dim in dims]
        wanted = [dim for dims in self.target for dim in dims]
        moved = jnp.transpose(split(block, self.source, sizes), [flat.index(dim) for dim in wanted if dim in flat])
        if len(wanted) > len(flat):
            alone = [axis for axis, dim in enumerate(wanted) if dim not in flat]
            moved = jnp.broadcast_to(jnp.expand_dims(moved, alone), [sizes[dim] for dim in wanted])
        return moved.reshape([math.prod(sizes[dim] for dim in dims) for dims in self.target])
