"""Prefixes of the steps of one block, which go on from what comes before it.

What nobody reads is not merged: padding, the last step of an exclusive scan, prefixes where only the total is wanted.
Its cotangent would be 0, and 0 times an infinity that it is merged with is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.merging.blocks import (
    Axes,
    combine_blocks,
    fold_block,
    identity_block,
    last_of_block,
    merge_behind,
    scan_block,
    shared_axes,
)
from combinators.merging.chosen import read_where
from combinators.merging.monoid import Monoid
from combinators.monoids.optional import nothing, optional
from combinators.numerics.row_scan import ahead_of_last, has_rows, row_scan, rows_on
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.lowering.time.scan_block import ScanBlock

Arguments = tuple[Monoid, Any, Sequence[Axes]]
BeforeOf = Callable[[Callable[[], list[Any]]], list[Any]]
"""What comes before a block, from a function that gives its total, which is not called where nobody wants it."""


def prefixes(block: ScanBlock, steps: list[Any], before_of: BeforeOf, there: Any, read: Any) -> list[Any]:
    """Prefixes of a block.

    Args:
      block: where it lies.
      steps: the leaves of its steps.
      before_of: gives what came before.
      there: whether that is anything.
      read: whether anybody reads the total that `before_of` may ask for.
    """
    if not block.is_uneven:
        return _along(block.arguments, block, steps, before_of, there, read)
    if block.monoid.native is None:
        scanned = _beside_padding(block, steps, before_of, there, read)
    else:
        scanned = _along(block.arguments, block, _masked(block, steps), before_of, there, read)
    # Padding keeps the state of its own step: a state that occurs, where the identity may present as NaN.
    valid = block.masks(steps)
    return [jnp.where(keep, leaf, own) for keep, leaf, own in zip(valid, scanned, steps, strict=True)]


def total(block: ScanBlock, steps: list[Any]) -> list[Any]:
    """What the steps of a block come to, where nobody reads prefixes; the identity where it has none."""
    if not block.is_uneven or block.monoid.native is not None:
        return _folded(block.arguments, block, _masked(block, steps))
    flagged, leaves = _flagged(block, steps, optional(block.monoid.combine))
    return _or_identity(block, _folded(flagged, block, leaves)[1:])


def _masked(block: ScanBlock, steps: list[Any]) -> list[Any]:
    if not block.is_uneven:
        return steps
    unit = identity_block(*block.arguments, steps)
    return [jnp.where(keep, leaf, one) for keep, leaf, one in zip(block.masks(steps), steps, unit, strict=True)]


def _or_identity(block: ScanBlock, state: list[Any]) -> list[Any]:
    """The total of a block; of one without a step the identity, and not the zeros that stand for none."""
    unit = identity_block(*block.of_totals, state)
    return [jnp.where(block.count > 0, leaf, one) for leaf, one in zip(state, unit, strict=True)]


def _folded(arguments: Arguments, block: ScanBlock, steps: list[Any]) -> list[Any]:
    rows = rows_on(block.here.platforms)
    if rows is not None and has_rows(rows, arguments[0], arguments[2], block.over, steps):
        return row_scan(rows, *arguments, block.over, steps, block.reverse, True).alone()
    return fold_block(*arguments, block.over, steps)


def _along(
    arguments: Arguments, block: ScanBlock, steps: list[Any], before_of: BeforeOf, there: Any, read: Any
) -> list[Any]:
    """Prefixes of the steps of a block by the monoid, tree and carrier in `arguments`."""
    along = _without_own if block.shaped.operation.exclusive else _with_own
    return along(arguments, block, steps, before_of, there, read)


def _without_own(
    arguments: Arguments, block: ScanBlock, steps: list[Any], before_of: BeforeOf, there: Any, read: Any
) -> list[Any]:
    """Those of all steps but the last, which is merged into the total alone."""
    (monoid, tree, carrier), over = arguments, block.over
    ahead, last = (of(carrier, over, steps, block.reverse) for of in (ahead_of_last, last_of_block))
    inner = [tuple(name for name in axes if name != over) for axes in carrier]
    before: list[Any] = []

    def whole(of_ahead: Callable[[], list[Any]]) -> list[Any]:
        pair = read_where(read, of_ahead()), read_where(read, last)
        return combine_blocks(monoid, tree, inner, *(pair[::-1] if block.reverse else pair))

    def given(of_ahead: Callable[[], list[Any]]) -> list[Any]:
        before.extend(before_of(partial(whole, of_ahead)))
        return before

    if ahead[0].shape[carrier[0].index(over)]:
        ahead = _with_own(arguments, block, ahead, given, there, read)
    else:
        before.extend(before_of(lambda: last))
    first = [jnp.expand_dims(leaf, axes.index(over)) for leaf, axes in zip(before, carrier, strict=True)]
    return [
        jnp.concatenate([leaf, one] if block.reverse else [one, leaf], axis=axes.index(over))
        for leaf, one, axes in zip(ahead, first, carrier, strict=True)
    ]


def _with_own(
    arguments: Arguments, block: ScanBlock, steps: list[Any], before_of: BeforeOf, there: Any, read: Any
) -> list[Any]:
    monoid, _, carrier = arguments
    over, rows, platforms = block.over, rows_on(block.here.platforms), block.here.platforms
    if rows is not None and has_rows(rows, monoid, carrier, over, steps):
        passes = row_scan(rows, *arguments, over, steps, block.reverse, read, flagged=monoid is not block.monoid)
        return passes.prefixes(before_of(passes.total), there)
    inclusive = scan_block(*arguments, over, steps, block.reverse)
    if platforms == ("cuda",):
        # Fused with what goes on from there, the tree is computed again for every step: twice the time on an H100.
        inclusive = list(lax.optimization_barrier(tuple(inclusive)))
    before = before_of(lambda: last_of_block(carrier, over, inclusive, block.reverse))
    spread = [
        jnp.broadcast_to(jnp.expand_dims(leaf, axes.index(over)), full.shape)
        for leaf, axes, full in zip(before, carrier, inclusive, strict=True)
    ]
    return merge_behind(*arguments, spread, inclusive, there, block.reverse)


def _beside_padding(block: ScanBlock, steps: list[Any], before_of: BeforeOf, there: Any, read: Any) -> list[Any]:
    """Prefixes of a block with padding behind its steps, or before them for scans from the end: flags say what counts.

    What ends in padding is read by nobody, and what begins with it is made of the steps behind it alone.
    """
    exclusive = block.shaped.operation.exclusive
    whole = optional(block.monoid.combine)
    monoid = whole if block.reverse else Monoid(nothing, UntilPadding(block.monoid), name=whole.name)
    arguments, (flags, *_) = _flagged(block, steps, monoid)
    axis = arguments[2][0].index(block.over)
    if exclusive and not block.reverse:
        # The prefix up to a step is that of the step behind it, and read where that one is no padding.
        last = lax.broadcasted_iota(jnp.int32, flags.shape, axis) == block.cut.block - 1
        flags &= block.valid(flags, axis, 1) | last

    def before(of_all: Callable[[], list[Any]]) -> list[Any]:
        state, like = before_of(lambda: _or_identity(block, of_all()[1:])), jnp.take(flags, 0, axis=axis)
        return [vary(jnp.broadcast_to(there, like.shape), sorted(varying_axes(flags))), *state]

    found = _along(arguments, block, [flags, *steps], before, there, read)[1:]
    if not (block.reverse and exclusive):
        return found
    # Behind nothing but padding stands the identity, and not the zeros that stand for none.
    unit = identity_block(*block.arguments, steps)
    met = block.masks(found, 1)
    return [jnp.where(there | each, leaf, one) for each, leaf, one in zip(met, found, unit, strict=True)]


def _flagged(block: ScanBlock, steps: list[Any], monoid: Monoid) -> tuple[Arguments, list[Any]]:
    """A monoid of flagged states, and the steps with flags that say which are no padding."""
    carrier = block.shaped.carrier
    shared, sizes = shared_axes(carrier), dict(zip(carrier[0], steps[0].shape, strict=True))
    like = jax.ShapeDtypeStruct(tuple(sizes[name] for name in shared), jnp.bool_)
    varying = sorted(frozenset().union(*map(varying_axes, steps)))
    flags = vary(block.valid(like, shared.index(block.over)), varying)
    tree = jax.tree_util.treedef_tuple((jax.tree.structure(0), block.shaped.state_tree))
    return (monoid, tree, [shared, *carrier]), [flags, *steps]


@final
@dataclass(frozen=True)
class UntilPadding:
    """Merge two flagged states; where the later one ends in padding nobody reads it, and no derivative comes back.

    Forwards this costs nothing beside the flags.
    """

    monoid: Monoid

    def __call__(self, left: Any, right: Any) -> Any:
        """Return whether the later state counts, and the merged state."""
        (_, first), (read, second) = left, right
        leaves, tree = jax.tree.flatten((first, second))
        flags = [jnp.expand_dims(read, range(read.ndim, leaf.ndim)) for leaf in leaves]
        return read, self.monoid.merge(*jax.tree.unflatten(tree, read_where(flags, leaves)))
