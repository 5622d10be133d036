"""Scanning along a cut dimension: local scan, exclusive scan of the devices' totals, combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.blocks import (
    Axes,
    identity_block,
    last_of_block,
    merge_behind,
    scan_block,
    shared_axes,
)
from combinators.merging.monoid import Monoid
from combinators.monoids.optional import optional
from combinators.numerics.row_scan import ahead_of_last, has_rows, row_scan, rows_on
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import valid_count
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.planning.folding.traffic import scan_distances
from tapestry_jax.planning.geometry.layout import Cut

Arguments = tuple[Monoid, Any, Sequence[Axes]]
BeforeOf = Callable[[list[Any]], list[Any]]


def scan_over_mesh(shaped: Shaped, cut: Cut, here: Here, steps: list[Any]) -> list[Any]:
    """Prefixes of steps whose dimension `over` is cut; returns the states that the operation presents."""

    def before(totals: list[Any]) -> list[Any]:
        return total_before(shaped, cut, here, totals)

    return _scanned(shaped, cut, here, steps, before, _place(shaped, cut, here) > 0)


def total_before(shaped: Shaped, cut: Cut, here: Here, totals: list[Any]) -> list[Any]:
    """What the devices before this one come to, from the total of each."""
    return _exclusive_over_mesh(shaped, _inner(shaped), cut, here, totals, shaped.operation.reverse)


def scan_in_turn(
    shaped: Shaped, cut: Cut, here: Here, steps: list[Any], before: list[Any], met: Sequence[str], begins: Any = False
) -> tuple[list[Any], list[Any]]:
    """Prefixes of the steps of one turn of a loop, going on from `before`, and the total for the next turn.

    Args:
      shaped: the scan.
      cut: of the dimension that it runs over.
      here: in which turn.
      steps: of this turn.
      before: the total of the turns before.
      met: the axes of `cut` along which `before` has met something: not those around a loop that began anew.
      begins: whether `before` is nothing although turns come before this one.
    """
    over = shaped.operation.over
    assert shaped.operation.monoid is not None and over is not None
    index = here.index(met)
    begun = index < here.size(met) - 1 if shaped.operation.reverse else index > 0
    there = begun & (_place(shaped, cut, here) > 0) | here.older
    if begins is not False:
        there &= ~begins
    own: list[Any] = []

    def given(totals: list[Any]) -> list[Any]:
        own.extend(totals)
        return before

    scanned = _scanned(shaped, cut, here, steps, given, there)
    arguments = (shaped.operation.monoid, shaped.state_tree, _inner(shaped))
    uneven = cut.block * here.size(cut.axes) != shaped.sizes[over]
    if here.goes_on and uneven and not shaped.operation.reverse and shaped.operation.monoid.native is None:
        return scanned, _behind_last(arguments, shaped, cut, here, steps, scanned, before, there)
    return scanned, merge_behind(*arguments, before, own, there, shaped.operation.reverse)


def _behind_last(
    arguments: Arguments,
    shaped: Shaped,
    cut: Cut,
    here: Here,
    steps: list[Any],
    scanned: list[Any],
    before: list[Any],
    there: Any,
) -> list[Any]:
    """The total behind the last step of a turn that is no padding, which beside an infinity is not merged with it."""
    over = shaped.operation.over
    assert over is not None
    count = valid_count(cut, shaped.sizes[over], here)
    places = [axes.index(over) for axes in shaped.carrier]

    def last(leaf: Any, axis: int) -> Any:
        place = vary(jnp.maximum(count - 1, 0), sorted(varying_axes(leaf)))
        return lax.dynamic_index_in_dim(leaf, place, axis, keepdims=False)

    total = list(map(last, scanned, places))
    if shaped.operation.exclusive:
        # Its prefixes are those before each step.
        total = merge_behind(*arguments, total, list(map(last, steps, places)), there | (count > 1))
    return [jnp.where(count > 0, leaf, left) for leaf, left in zip(total, before, strict=True)]


def _place(shaped: Shaped, cut: Cut, here: Here) -> Any:
    """How many blocks with steps a scan meets before this one, in all turns and on all devices; below 0 of none."""
    index, over = here.index(cut.axes), shaped.operation.over
    assert over is not None
    return -(-shaped.sizes[over] // cut.block) - 1 - index if shaped.operation.reverse else index


def _inner(shaped: Shaped) -> list[Axes]:
    """The axes of a total."""
    return [tuple(name for name in axes if name != shaped.operation.over) for axes in shaped.carrier]


def _scanned(shaped: Shaped, cut: Cut, here: Here, steps: list[Any], before_of: BeforeOf, there: Any) -> list[Any]:
    """Prefixes of this block, which go on from what `before_of` its total says came before, if anything is `there`."""
    operation = shaped.operation
    over, reverse = operation.over, operation.reverse
    assert operation.monoid is not None and over is not None
    size, carrier = shaped.sizes[over], shaped.carrier
    arguments = (operation.monoid, shaped.state_tree, carrier)
    uneven = cut.block * here.size(cut.axes) != size
    valid = [_valid(leaf, axes.index(over), cut, size, here) for leaf, axes in zip(steps, carrier, strict=True)]
    masked = steps
    if uneven:
        unit = identity_block(*arguments, steps)
        masked = [jnp.where(keep, leaf, one) for keep, leaf, one in zip(valid, steps, unit, strict=True)]
    if uneven and reverse and operation.monoid.native is None:
        scanned = _behind_padding(shaped, cut, here, masked, before_of, there)
    else:
        scanned = _along(arguments, shaped, here, masked, before_of, there, valid if uneven else None)
    if not uneven:
        return scanned
    # Padding keeps the state of its own step: a state that occurs, where the identity may present as NaN.
    return [jnp.where(keep, leaf, own) for keep, leaf, own in zip(valid, scanned, steps, strict=True)]


def _along(
    arguments: Arguments,
    shaped: Shaped,
    here: Here,
    steps: list[Any],
    before_of: BeforeOf,
    there: Any,
    keeps: Sequence[Any] | None = None,
) -> list[Any]:
    """Prefixes of the steps of a block by the monoid, tree and carrier in `arguments`.

    Padding, where `keeps` is False, is not merged with what comes before: nobody reads it, so that it has a slope of 0.
    """
    monoid, _, carrier = arguments
    operation, over, reverse = shaped.operation, shaped.operation.over, shaped.operation.reverse
    assert over is not None
    rows = rows_on(here.platforms)
    if rows is not None and has_rows(rows, monoid, carrier, over, steps):
        passes = row_scan(rows, *arguments, over, steps, reverse)
        return passes.prefixes(before_of(passes.total()), operation.exclusive, there)
    inclusive = scan_block(*arguments, over, steps, reverse)
    if here.platforms == ("cuda",):
        # Fused with what goes on from there, the tree is computed again for every step: twice the time on an H100.
        inclusive = list(lax.optimization_barrier(tuple(inclusive)))
    before = before_of(last_of_block(carrier, over, inclusive, reverse))
    entering = [jnp.expand_dims(leaf, axes.index(over)) for leaf, axes in zip(before, carrier, strict=True)]
    if operation.exclusive:
        # What is dropped is not merged: it has a slope of 0, and 0 * inf is NaN.
        inclusive = ahead_of_last(carrier, over, inclusive, reverse)
        keeps = None if keeps is None else ahead_of_last(carrier, over, keeps, reverse)
    spread = [jnp.broadcast_to(leaf, full.shape) for leaf, full in zip(entering, inclusive, strict=True)]
    if keeps is not None:
        unit = identity_block(*arguments, spread)
        spread = [jnp.where(keep, leaf, one) for keep, leaf, one in zip(keeps, spread, unit, strict=True)]
    scanned = merge_behind(*arguments, spread, inclusive, there, reverse)
    if not operation.exclusive:
        return scanned
    return [
        jnp.concatenate([leaf, first] if reverse else [first, leaf], axis=axes.index(over))
        for leaf, first, axes in zip(scanned, entering, carrier, strict=True)
    ]


def _behind_padding(
    shaped: Shaped, cut: Cut, here: Here, masked: list[Any], before_of: BeforeOf, there: Any
) -> list[Any]:
    """Prefixes of a block that begins with padding, as scans from the end meet it: flags say which steps count."""
    operation, carrier, monoid = shaped.operation, shaped.carrier, shaped.operation.monoid
    assert monoid is not None and operation.over is not None
    shared, size = shared_axes(carrier), shaped.sizes[operation.over]
    sizes = dict(zip(carrier[0], masked[0].shape, strict=True))
    like = jax.ShapeDtypeStruct(tuple(sizes[name] for name in shared), jnp.bool_)
    varying = sorted(frozenset().union(*map(varying_axes, masked)))
    flags = vary(_valid(like, shared.index(operation.over), cut, size, here), varying)
    some = valid_count(cut, size, here) > 0
    inner = _inner(shaped)

    def before(totals: list[Any]) -> list[Any]:
        # A block without a step comes to the identity, and not to the zeros that stand for none.
        flag, own = totals[0], totals[1:]
        unit = identity_block(monoid, shaped.state_tree, inner, own)
        kept = [jnp.where(some, leaf, one) for leaf, one in zip(own, unit, strict=True)]
        return [jnp.broadcast_to(there, flag.shape), *before_of(kept)]

    tree = jax.tree_util.treedef_tuple((jax.tree.structure(0), shaped.state_tree))
    flagged = (optional(monoid.combine), tree, [shared, *carrier])
    return _along(flagged, shaped, here, [flags, *masked], before, there)[1:]


def _valid(leaf: Any, axis: int, cut: Cut, size: int, here: Here) -> Any:
    count = vary(valid_count(cut, size, here), sorted(varying_axes(leaf)))
    return lax.broadcasted_iota(jnp.int32, leaf.shape, axis) < count


def _exclusive_over_mesh(
    shaped: Shaped, carrier: Sequence[Axes], cut: Cut, here: Here, totals: list[Any], reverse: bool
) -> list[Any]:
    """What the devices before this one add up to, in a logarithmic number of exchanges; the identity on the first."""
    assert shaped.operation.monoid is not None
    arguments = (shaped.operation.monoid, shaped.state_tree, carrier)
    devices = here.size(cut.axes)
    place = _place(shaped, cut, here)
    unit = identity_block(*arguments, totals)

    def receive(state: list[Any], distance: int, there: Any) -> list[Any]:
        """The state of the device `distance` places before; the identity where nothing is there."""
        pairs = [(i, i + distance) for i in range(devices - distance)]
        if reverse:
            pairs = [(target, source) for source, target in pairs]
        moved = [permute_over(leaf, cut.axes, pairs, here) for leaf in state]
        # An absent sender leaves zeros, which are not the identity.
        return [jnp.where(there, leaf, one) for leaf, one in zip(moved, unit, strict=True)]

    state = receive(totals, 1, place > 0)
    for distance in scan_distances(devices):
        # The first device has the identity by now: nothing is before it.
        there = place > distance
        state = merge_behind(*arguments, receive(state, distance, there), state, there, reverse)
    return state
