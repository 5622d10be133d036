"""Prefixes of many steps in two passes over rows of them: less work and memory than a tree of all steps.

The steps are cut into rows of consecutive ones. The first pass walks along all rows at once and gives their
totals; prefixes of the totals say what comes before each row; the second pass walks along the rows again, each from
there, and gives the prefixes of the steps. What comes before the whole block enters between the passes, at no cost.

They are for CPUs. On TPUs and GPUs each step of a row is a kernel or two, in both passes, and a tree of `n` steps is
fewer.

Source: the reduce-then-scan of Dotsenko et al. 2008, "Fast scan algorithms on graphics processors", section 3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.equations.scanned import scan
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.blocks import (
    Axes,
    combine_blocks,
    fold_block,
    identity_block,
    is_native_scan,
    merge_behind,
    scan_block,
)
from combinators.merging.chosen import read_where
from combinators.merging.monoid import Monoid
from combinators.monoids.dual import dual


@dataclass(frozen=True)
class Rows:
    """How long scans are cut into rows.

    Attributes:
      length: the steps of a row: each takes one turn of a loop, in which all rows advance.
      least: from how many steps on two passes are faster than `lax.associative_scan`: see docs/design/lowering.md.
    """

    length: int
    least: int


ROWS = Rows(32, 1024)
"""On CPUs, where the memory that is read and written decides."""


def rows_on(platforms: Collection[str] = ()) -> Rows | None:
    """How long scans are cut on these platforms; None where a tree of all steps is best, as on TPUs and GPUs.

    Args:
      platforms: as lowering names them; where a CPU is among them, or none is known, they are taken for CPUs.
    """
    return ROWS if not platforms or "cpu" in platforms else None


def prefixes(
    monoid: Monoid,
    tree: Any,
    carrier: Sequence[Axes],
    over: str,
    state: list[Any],
    rows: Rows | None,
    reverse: bool = False,
    exclusive: bool = False,
) -> list[Any]:
    """Prefixes of a block of steps along `over`, by whatever is fastest.

    Args:
      monoid: merges two states.
      tree: how leaves make a state.
      carrier: the axes of the leaves.
      over: the scanned dimension.
      state: the leaves of the steps.
      rows: how they are cut where they are many.
      reverse: suffixes instead.
      exclusive: without the own step.
    """
    if exclusive and state[0].shape[carrier[0].index(over)] <= 1:
        # Nothing comes before the one step: what is made of no operand is not sent, nor has it a gradient.
        return identity_block(monoid, tree, carrier, state)
    if exclusive:
        # The last step is merged into nothing: dropped afterwards it would have a slope of 0, and 0 * inf is NaN.
        some, one = ahead_of_last(carrier, over, state, reverse), ahead_of_last(carrier, over, state, reverse, 1)
        found = prefixes(monoid, tree, carrier, over, some, rows, reverse)
        edge = identity_block(monoid, tree, carrier, one)
        return [
            jnp.concatenate([leaf, first] if reverse else [first, leaf], axis=axes.index(over))
            for leaf, first, axes in zip(found, edge, carrier, strict=True)
        ]
    if rows is not None and has_rows(rows, monoid, carrier, over, state):
        return row_scan(rows, monoid, tree, carrier, over, state, reverse).prefixes(None)
    return scan_block(monoid, tree, carrier, over, state, reverse)


def ahead_of_last(
    carrier: Sequence[Axes], over: str, state: Sequence[Any], reverse: bool, count: int | None = None
) -> list[Any]:
    """The steps of a block but for the last one that a scan meets; or the first `count` of them."""
    found: list[Any] = []
    for leaf, axes in zip(state, carrier, strict=True):
        axis = axes.index(over)
        size = leaf.shape[axis]
        kept = size - 1 if count is None else count
        found.append(lax.slice_in_dim(leaf, size - kept if reverse else 0, size if reverse else kept, axis=axis))
    return found


def has_rows(rows: Rows, monoid: Monoid, carrier: Sequence[Axes], over: str, state: Sequence[Any]) -> bool:
    """Whether a block is scanned by rows."""
    return state[0].shape[carrier[0].index(over)] >= rows.least and not is_native_scan(monoid, state)


def row_scan(
    rows: Rows,
    monoid: Monoid,
    tree: Any,
    carrier: Sequence[Axes],
    over: str,
    state: list[Any],
    reverse: bool,
    read: Any = False,
    flagged: bool = False,
) -> RowScan:
    """The two passes over a block of steps; the arguments are those of `prefixes` and of `RowScan`."""
    # Flipped steps come last first: the order of the monoid is kept by swapping the arguments back.
    return RowScan(rows, dual(monoid) if reverse else monoid, tree, tuple(carrier), over, state, reverse, read, flagged)


@dataclass(frozen=True, eq=False)
class RowScan:
    """The two passes over one block of steps.

    Attributes:
      rows: how the steps are cut.
      monoid: merges two states, the one that is scanned earlier first.
      tree: how leaves make a state.
      carrier: the axes of the leaves of the steps.
      over: the scanned dimension.
      state: the leaves of the steps.
      reverse: whether the last step comes first.
      read: whether anybody reads the total, a boolean scalar: where nobody does, nothing comes back from it.
      flagged: whether the first leaf says which prefixes are read: up to the last of some steps, or from the first one.
    """

    rows: Rows
    monoid: Monoid
    tree: Any
    carrier: tuple[Axes, ...]
    over: str
    state: list[Any]
    reverse: bool
    read: Any = False
    flagged: bool = False

    def total(self) -> list[Any]:
        """All steps merged, without `over`; of what has `read`."""
        last = [leaf[-1:] for leaf in self._totals]
        if len(self._totals[0]) > 1:
            last = self._merge(read_where(self.read, [leaf[-1:] for leaf in self._ends]), last)
        return [leaf[0] for leaf in last]

    def alone(self) -> list[Any]:
        """The total, where nobody reads prefixes."""
        return fold_block(self.monoid, self.tree, self._ends_axes, "row", self._totals)

    def prefixes(self, before: list[Any] | None, there: Any = True) -> list[Any]:
        """The prefixes behind the state `before` (as `total`); behind nothing where it is None.

        Args:
          before: what comes before the block.
          there: whether `before` is anything but nothing, a boolean scalar.
        """
        first, rest = self._steps
        ahead, steps = [leaf[:1] for leaf in first], [leaf[1:] for leaf in first]
        behind = self._ends
        if before is not None:
            entering = [jnp.expand_dims(leaf, 0) for leaf in before]
            spread = [jnp.broadcast_to(leaf, full.shape) for leaf, full in zip(entering, behind, strict=True)]
            behind = self._behind(spread, behind, there)
            ahead = self._behind(entering, ahead, there)
        made = _joined(ahead, self._merge(behind, steps))

        def turn(carry: list[Any], step: list[Any]) -> tuple[list[Any], list[Any]]:
            merged = self._merge(carry, step)
            return merged, merged

        _, found = scan(turn, made, rest)
        return [self._block(number, leaf) for number, leaf in enumerate(_joined([x[None] for x in made], found))]

    @cached_property
    def _ends_axes(self) -> list[Axes]:
        return [("row", *(name for name in axes if name != self.over)) for axes in self.carrier]

    @cached_property
    def _steps(self) -> tuple[list[Any], list[Any]]:
        """The first step of every row, `(row, ...)`; then the second, and so on: `(length - 1, row, ...)`.

        Rows begin with their first step and not with the identity, whose merge is not exact beside infinities.
        """
        steps = [
            jnp.moveaxis(leaf, axes.index(self.over), 0) for leaf, axes in zip(self.state, self.carrier, strict=True)
        ]
        if self.reverse:
            steps = [jnp.flip(leaf, 0) for leaf in steps]
        size, length = steps[0].shape[0], self.rows.length
        rows = -(-size // length)
        missing = rows * length - size
        if missing:
            rest = identity_block(self.monoid, self.tree, self._ends_axes, [leaf[:missing] for leaf in steps])
            steps = [jnp.concatenate([leaf, more]) for leaf, more in zip(steps, rest, strict=True)]
        cut = [leaf.reshape(rows, length, *leaf.shape[1:]) for leaf in steps]
        return [leaf[:, 0] for leaf in cut], [jnp.swapaxes(leaf[:, 1:], 0, 1) for leaf in cut]

    @cached_property
    def _ends(self) -> list[Any]:
        """What the rows up to each one come to, but for the last, which comes before no other."""
        ahead = self._totals if self.read is False else [leaf[:-1] for leaf in self._totals]
        if self.flagged:
            ahead = [self._chosen(self._begin_read[1:], [ahead[0]], [jnp.zeros_like(ahead[0])])[0], *ahead[1:]]
        return prefixes(self.monoid, self.tree, self._ends_axes, "row", ahead, self.rows)

    @property
    def _begin_read(self) -> Any:
        """Of flagged states, for each row whether the prefix of its first step is read."""
        flags = self._steps[0][0]
        return jnp.all(flags, axis=range(1, flags.ndim))

    @cached_property
    def _totals(self) -> list[Any]:
        """What each row comes to by itself; without the last one where nobody reads the total of all."""
        (first, rest), length = self._steps, self.rows.length
        rows = first[0].shape[0]
        if rows > np.iinfo(np.int32).max:
            told = f"a scan walks {rows} rows of {length} steps"
            raise GraphError(message(told, "they are counted in int32", remedy="Scan fewer steps at once."))
        over = rows * length - self.state[0].shape[self.carrier[0].index(self.over)]
        if self.read is False:
            first, rest, over = [leaf[:-1] for leaf in first], [leaf[:, :-1] for leaf in rest], 0
        before_last = jnp.arange(rows) < rows - 1

        def turn(carry: list[Any], step: tuple[Any, list[Any]]) -> tuple[list[Any], None]:
            merged = self._merge(carry, self._of_read(step[1]))
            # The identity is not merged behind the last step: beside an infinity it may make NaN.
            there = before_last | (step[0] < length - over)
            return self._chosen(there, merged, carry) if over else merged, None

        # In a mesh a loop has to start from what varies as its result does; the choice below is made when compiling.
        like = [lax.stop_gradient(leaf) for leaf in self._merge(first, first)]
        start = [jnp.where(True, one, other) for one, other in zip(self._of_read(first), like, strict=True)]
        return scan(turn, start, (jnp.arange(1, length), rest))[0]

    def _of_read(self, steps: list[Any]) -> list[Any]:
        """One step of each row; nothing comes back where nobody reads what the row comes to."""
        if isinstance(self.read, bool) and not self.flagged:
            return steps
        # It is read where the next row begins with a step whose prefix is.
        rows = self._steps[0][0].shape[0]
        read = self._begin_read[1:] if self.flagged else jnp.ones(rows - 1, bool)
        read = read if self.read is False else jnp.append(read, self.read)
        return read_where([jnp.expand_dims(read, range(1, leaf.ndim)) for leaf in steps], steps)

    def _chosen(self, rows: Any, leaves: list[Any], others: list[Any]) -> list[Any]:
        shapes = [jnp.expand_dims(rows, range(1, leaf.ndim)) for leaf in leaves]
        return [jnp.where(each, leaf, other) for each, leaf, other in zip(shapes, leaves, others, strict=True)]

    def _merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        return combine_blocks(self.monoid, self.tree, self._ends_axes, earlier, later)

    def _behind(self, earlier: list[Any], later: list[Any], there: Any) -> list[Any]:
        return merge_behind(self.monoid, self.tree, self._ends_axes, earlier, later, there)

    def _block(self, number: int, found: Any) -> Any:
        axis = self.carrier[number].index(self.over)
        size = self.state[number].shape[axis]
        steps = jnp.swapaxes(found, 0, 1).reshape(-1, *found.shape[2:])[:size]
        return jnp.moveaxis(jnp.flip(steps, 0) if self.reverse else steps, 0, axis)


def _joined(ahead: list[Any], behind: list[Any]) -> list[Any]:
    return [jnp.concatenate(pair) for pair in zip(ahead, behind, strict=True)]
