"""Scanning along a cut dimension: local scan, exclusive scan of the devices' totals, combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.merging.blocks import Axes, combine_blocks, identity_block, last_of_block, scan_block, shift_block
from combinators.numerics.row_scan import has_rows, row_scan, rows_on
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import valid_count
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.planning.folding.traffic import scan_distances
from tapestry_jax.planning.geometry.layout import Cut


def scan_over_mesh(shaped: Shaped, cut: Cut, here: Here, steps: list[Any]) -> list[Any]:
    """Prefixes of steps whose dimension `over` is cut; returns the states that the operation presents."""

    def before(totals: list[Any]) -> list[Any]:
        return total_before(shaped, cut, here, totals)

    return _scanned(shaped, cut, here, steps, before)


def total_before(shaped: Shaped, cut: Cut, here: Here, totals: list[Any]) -> list[Any]:
    """What the devices before this one come to, from the total of each."""
    return _exclusive_over_mesh(shaped, _inner(shaped), cut, here, totals, shaped.operation.reverse)


def scan_in_turn(
    shaped: Shaped, cut: Cut, here: Here, steps: list[Any], before: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Prefixes of the steps of one turn of a loop, going on from `before`, and the total for the next turn."""
    assert shaped.operation.monoid is not None
    own: list[Any] = []

    def given(totals: list[Any]) -> list[Any]:
        own.extend(totals)
        return before

    scanned = _scanned(shaped, cut, here, steps, given)
    first, second = (own, before) if shaped.operation.reverse else (before, own)
    return scanned, combine_blocks(shaped.operation.monoid, shaped.state_tree, _inner(shaped), first, second)


def _inner(shaped: Shaped) -> list[Axes]:
    """The axes of a total."""
    return [tuple(name for name in axes if name != shaped.operation.over) for axes in shaped.carrier]


def _scanned(
    shaped: Shaped, cut: Cut, here: Here, steps: list[Any], before_of: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Prefixes of this block, which go on from what `before_of` its total says came before."""
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
    rows = rows_on(here.platforms)
    if rows is not None and has_rows(rows, operation.monoid, carrier, over, masked):
        passes = row_scan(rows, *arguments, over, masked, reverse)
        before = before_of(passes.total())
        scanned = passes.prefixes(before, operation.exclusive)
    else:
        inclusive = scan_block(*arguments, over, masked, reverse)
        if here.platforms == ("cuda",):
            # Fused with what goes on from there, the tree is computed again for every step: twice the time on an H100.
            inclusive = list(lax.optimization_barrier(tuple(inclusive)))
        totals = last_of_block(carrier, over, inclusive, reverse)
        before = before_of(totals)
        local = shift_block(*arguments, over, inclusive, reverse) if operation.exclusive else inclusive
        scanned = _after(shaped, before, local)
    if not uneven:
        return scanned
    # Padding keeps the state of its own step: a state that occurs, where the identity may present as NaN.
    return [jnp.where(keep, leaf, own) for keep, leaf, own in zip(valid, scanned, steps, strict=True)]


def _after(shaped: Shaped, before: list[Any], local: list[Any]) -> list[Any]:
    """The prefixes `local` of one device behind what the devices before it come to."""
    operation, carrier = shaped.operation, shaped.carrier
    assert operation.monoid is not None and operation.over is not None
    spread = [
        jnp.broadcast_to(jnp.expand_dims(leaf, axes.index(operation.over)), full.shape)
        for leaf, axes, full in zip(before, carrier, local, strict=True)
    ]
    first, second = (local, spread) if operation.reverse else (spread, local)
    return combine_blocks(operation.monoid, shaped.state_tree, carrier, first, second)


def _valid(leaf: Any, axis: int, cut: Cut, size: int, here: Here) -> Any:
    count = vary(valid_count(cut, size, here), sorted(varying_axes(leaf)))
    return lax.broadcasted_iota(jnp.int32, leaf.shape, axis) < count


def _exclusive_over_mesh(
    shaped: Shaped, carrier: Sequence[Axes], cut: Cut, here: Here, totals: list[Any], reverse: bool
) -> list[Any]:
    """What the devices before this one add up to, in a logarithmic number of exchanges."""
    assert shaped.operation.monoid is not None
    arguments = (shaped.operation.monoid, shaped.state_tree, carrier)
    devices = here.size(cut.axes)
    index = here.index(cut.axes)
    place = devices - 1 - index if reverse else index
    unit = identity_block(*arguments, totals)

    def receive(state: list[Any], distance: int) -> list[Any]:
        """The state of the device `distance` places before; the identity where there is none."""
        pairs = [(i, i + distance) for i in range(devices - distance)]
        if reverse:
            pairs = [(target, source) for source, target in pairs]
        moved = [permute_over(leaf, cut.axes, pairs, here) for leaf in state]
        # An absent sender leaves zeros, which are not the identity.
        present = place >= distance
        return [jnp.where(present, leaf, one) for leaf, one in zip(moved, unit, strict=True)]

    state = receive(totals, 1)
    for distance in scan_distances(devices):
        earlier = receive(state, distance)
        first, second = (state, earlier) if reverse else (earlier, state)
        state = combine_blocks(*arguments, first, second)
    return state
