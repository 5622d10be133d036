"""Scans by a function that somebody wrote: states of blocks, what merges two of them, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from tapestry_jax.lifting.kernels.cells import Program

Function = Callable[[Any, Sequence[Any]], list[Any]]
"""Of blocks of the leaves of both sides, behind coordinates that it does not ask for."""


@dataclass(frozen=True)
class Laid:
    """How the leaf of a scan lies.

    Attributes:
      dims: a name for every axis.
      kinds: for every axis `cut`, where what is scanned is mapped along it and so may be cut, `whole`, or `one`, where
        it has one cell.
    """

    dims: tuple[str, ...]
    kinds: tuple[str, ...]

    def of(self, kind: str) -> tuple[str, ...]:
        """The dimensions of a kind."""
        return tuple(dim for dim, own in zip(self.dims, self.kinds, strict=True) if own == kind)

    def state(self, block: Any, shared: Sequence[str], sizes: dict[str, int]) -> Any:
        """A block with all shared dimensions first, and then those of one cell of it."""
        listed = [dim for dim in self.dims if dim not in self.of("one")]
        squeezed = block.reshape([size for size, kind in zip(block.shape, self.kinds, strict=True) if kind != "one"])
        order = [*(dim for dim in shared if dim in listed), *self.of("whole")]
        moved = jnp.transpose(squeezed, [listed.index(dim) for dim in order])
        missing = [at for at, dim in enumerate(shared) if dim not in listed]
        full = [sizes[dim] for dim in shared]
        return jnp.broadcast_to(jnp.expand_dims(moved, missing), [*full, *moved.shape[len(shared) - len(missing) :]])

    def as_block(self, cell: Any) -> Any:
        """A cell as a block of one."""
        return jnp.expand_dims(cell, [at for at, kind in enumerate(self.kinds) if kind != "whole"])

    def as_cell(self, block: Any) -> Any:
        """A block of one as a cell."""
        return block.reshape([size for size, kind in zip(block.shape, self.kinds, strict=True) if kind == "whole"])

    def presented(self, cell: Any) -> Any:
        """A cell with its axes of size 1."""
        kept = [kind for kind in self.kinds if kind != "cut"]
        return jnp.expand_dims(cell, [at for at, kind in enumerate(kept) if kind == "one"])


@dataclass(frozen=True)
class StatesOf:
    """The states of steps.

    Attributes:
      leaves: how they lie.
      shared: the dimensions that all leaves of a state have.
      order: in which the leaves make a state.
      is_optional: whether a state says that it is there.
    """

    leaves: tuple[Laid, ...]
    shared: tuple[str, ...]
    order: tuple[int, ...]
    is_optional: bool

    def __call__(self, *blocks: Any) -> Any:
        """The state of every step."""
        sizes = {
            dim: size
            for leaf, block in zip(self.leaves, blocks, strict=True)
            for dim, size in zip(leaf.dims, block.shape, strict=True)
        }
        leaves = [self.leaves[at].state(blocks[at], self.shared, sizes) for at in self.order]
        if self.is_optional:
            return jnp.ones([sizes[dim] for dim in self.shared], bool), tuple(leaves)
        return leaves[0] if len(leaves) == 1 else tuple(leaves)


@dataclass(frozen=True)
class Select:
    """Some leaves of a state.

    Attributes:
      leaves: how those lie.
      places: where they stand in it.
      is_optional: whether a state says that it is there.
    """

    leaves: tuple[Laid, ...]
    places: tuple[int, ...]
    is_optional: bool

    def __call__(self, state: Any) -> Any:
        """The leaves of one cell."""
        state = state[1] if self.is_optional else state
        listed = state if isinstance(state, tuple) else (state,)
        found = tuple(leaf.presented(listed[at]) for leaf, at in zip(self.leaves, self.places, strict=True))
        return found[0] if len(found) == 1 else found


@dataclass(frozen=True)
class MergeNumbers:
    """Merge two states whose leaves are numbers.

    Attributes:
      program: of the leaves of both sides, to those of a state; it reads no others.
      needed: which of them a state has.
      count: how many leaves a side has.
    """

    program: Program
    needed: tuple[int, ...]
    count: int
    is_of_others: ClassVar = True

    def __call__(self, left: Any, right: Any) -> Any:
        """What the function gives of them."""
        given: list[Any] = [None] * (2 * self.count)
        for at, one, other in zip(self.needed, left, right, strict=True):
            given[at], given[self.count + at] = one, other
        return tuple(self.program(given))


@dataclass(frozen=True)
class Merge:
    """Merge two states.

    Attributes:
      function: of the leaves of both sides.
      leaves: how they lie.
    """

    function: Function
    leaves: tuple[Laid, ...]
    is_of_others: ClassVar = True

    def __call__(self, left: Any, right: Any) -> Any:
        """What the function gives of them."""
        given = [leaf.as_block(cell) for side in (left, right) for leaf, cell in zip(self.leaves, side, strict=True)]
        out = self.function({}, given)
        return tuple(leaf.as_cell(block) for leaf, block in zip(self.leaves, out, strict=True))


@dataclass(frozen=True)
class Scanned:
    """The scan of JAX, on blocks of which the steps are not cut.

    Attributes:
      function: of the leaves of both sides.
      axes: the scanned axis of each.
      wanted: which prefixes.
      reverse: whether it begins at the end.
    """

    function: Function
    axes: tuple[int, ...]
    wanted: tuple[int, ...]
    reverse: bool

    def __call__(self, *blocks: Any) -> Any:
        """The prefixes."""
        to = self.axes[0] if len(set(self.axes)) == 1 else 0

        def merged(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
            given = [
                jnp.moveaxis(x, to, axis) for side in (left, right) for x, axis in zip(side, self.axes, strict=True)
            ]
            out = self.function({}, given)
            return [jnp.moveaxis(x, axis, to) for x, axis in zip(out, self.axes, strict=True)]

        steps = [jnp.moveaxis(x, axis, to) for x, axis in zip(blocks, self.axes, strict=True)]
        found = lax.associative_scan(merged, steps, reverse=self.reverse, axis=to)
        out = tuple(jnp.moveaxis(found[at], to, self.axes[at]) for at in self.wanted)
        return out[0] if len(out) == 1 else out
