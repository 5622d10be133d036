"""Scanning along a cut dimension: local scan, exclusive scan of the devices' totals, combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from combinators.merging.blocks import identity_block, merge_behind
from combinators.merging.chosen import read_where
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.exchange.collectives import permute_over
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.varying import varying_axes
from tapestry_jax.lowering.time.prefixes import prefixes, total
from tapestry_jax.lowering.time.scan_block import ScanBlock
from tapestry_jax.planning.folding.traffic import scan_distances
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.schedule import Region, Run, Schedule

Operands = TypeVar("Operands")


def scan_over_mesh(shaped: Shaped, cut: Cut, here: Here, steps: list[Any]) -> list[Any]:
    """Prefixes of steps whose dimension `over` is cut; returns the states that the operation presents."""
    block = ScanBlock(shaped, cut, here)

    def before(of_all: Callable[[], list[Any]]) -> list[Any]:
        return total_before(shaped, cut, here, of_all())

    return prefixes(block, steps, before, block.place > 0, block.is_followed)


def total_before(shaped: Shaped, cut: Cut, here: Here, totals: list[Any]) -> list[Any]:
    """What the devices before this one come to, from the total of each, in a logarithmic number of exchanges.

    It is the identity on the first.
    """
    block, devices = ScanBlock(shaped, cut, here), here.size(cut.axes)
    place, arguments, reverse = block.place, block.of_totals, shaped.operation.reverse
    # What comes before a device without steps is read by nobody.
    holds = here.index(cut.axes) < block.filled if block.has_empty else True
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
        there = (place > distance) & holds
        state = merge_behind(*arguments, receive(state, distance, there), state, there, reverse)
    return state


def scan_in_turn(
    shaped: Shaped,
    cut: Cut,
    here: Here,
    steps: list[Any],
    before: list[Any],
    met: Sequence[str],
    begins: Any = False,
    *,
    alone: bool = False,
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
      alone: whether nobody reads the prefixes: the steps stand in their place.
    """
    block, index = ScanBlock(shaped, cut, here), here.index(met)
    begun = index < here.size(met) - 1 if block.reverse else index > 0
    there = begun & (block.place > 0) | here.older
    if begins is not False:
        there &= ~begins
    if alone:
        some = block.count > 0 if block.has_empty else True
        return steps, merge_behind(*block.of_totals, before, total(block, steps), there, block.reverse, some)
    read = here.goes_on or block.is_followed
    if not block.is_uneven and not shaped.operation.exclusive:
        return _with_total(block, steps, before, there, read)
    scanned = prefixes(block, steps, lambda of_all: before, there, False)
    return scanned, _after(block, steps, scanned, before, there, read)


def _with_total(
    block: ScanBlock, steps: list[Any], before: list[Any], there: Any, read: Any
) -> tuple[list[Any], list[Any]]:
    """Prefixes and the total for the next turn, made of that of this one."""
    own: list[Any] = []

    def given(of_all: Callable[[], list[Any]]) -> list[Any]:
        own.extend(of_all())
        return before

    scanned = prefixes(block, steps, given, there, read)
    pair = read_where(read, before), read_where(read, own)
    return scanned, merge_behind(*block.of_totals, *pair, there, block.reverse)


def _after(
    block: ScanBlock, steps: list[Any], scanned: list[Any], before: list[Any], there: Any, read: Any
) -> list[Any]:
    """The total for the next turn: the prefix of the last step of this one, or the one before it and that step."""
    after = block.last(scanned)
    if block.shaped.operation.exclusive:
        pair = read_where(read, after), read_where(read, block.last(steps))
        after = merge_behind(*block.of_totals, *pair, there | (block.count > 1), block.reverse)
    if not block.has_empty:
        return after
    return [jnp.where(block.count > 0, leaf, other) for leaf, other in zip(after, before, strict=True)]


def for_later_devices(step: Region, schedule: Schedule, here: Here, operands: Operands) -> Operands:
    """The operands of a pass for totals, to which nothing comes back where no device behind this one has steps.

    All that the pass computes has a cotangent of 0 there, which beside an infinity would be NaN. Operands that are the
    same on all devices are left as they are: to let them vary here would be one more sum over the mesh.

    Args:
      step: a loop with `ends`; what its last scan comes to is read.
      schedule: around the loop.
      here: the device.
      operands: a pytree of what the pass reads.
    """
    node, _ = step.scans[-1]
    shaped = schedule.graph.shaped(node)
    assert shaped.operation.over is not None and shaped.operation.monoid is not None
    cut = _cut_of(step.body, node, shaped.operation.over)
    if shaped.operation.monoid.native is not None or cut is None:
        return operands
    axes = in_space(cut.axes)
    device = here.index(axes)
    read = device > 0 if shaped.operation.reverse else (device + 1) * cut.piece < shaped.sizes[shaped.operation.over]

    def leaf(array: Any) -> Any:
        return read_where(read, [array])[0] if varying_axes(array).issuperset(axes) else array

    return jax.tree.map(leaf, operands)


def _cut_of(body: Schedule, node: int, over: str) -> Cut | None:
    for step in body.steps:
        if isinstance(step, Run) and step.node == node:
            return dict(step.cuts)[over]
        if isinstance(step, Region) and (found := _cut_of(step.body, node, over)) is not None:
            return found
    return None
