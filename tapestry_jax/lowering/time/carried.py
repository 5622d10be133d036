"""What a loop in time carries from turn to turn: the states of its folds, and the totals of its scans."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.merging.blocks import identity_block, merge_behind
from tapestry_jax.lowering.on_device.attained import without_elements
from tapestry_jax.lowering.on_device.filled import first_turn, is_filled, met_before
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.untyped import states_on_device
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.lowering.time.accumulate import accumulate
from tapestry_jax.lowering.time.framed import State
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.scheduling.schedule import Region, Run, Schedule, Slot


@dataclass(frozen=True, eq=False)
class Carried:
    """The leaves that a loop carries, those of folds before those of scans.

    Attributes:
      folds: operation, types of the leaves and their axes, of states that are added up.
      scans: the same of the totals that scans go on from.
      slots: of all leaves, as the body of the loop makes them.
      totals: the inputs of the body that take the totals.
      reverse: whether the last chunk comes first.
      anew: the nodes of the scans that begin with nothing; the others begin behind the devices before.
      loop: the loop.
      cuts: for every state that is added up, how the dimensions of its operation are cut.
    """

    folds: tuple[State, ...]
    scans: tuple[State, ...]
    slots: tuple[Slot, ...]
    totals: tuple[int, ...]
    reverse: bool
    anew: frozenset[int]
    loop: str
    cuts: tuple[Mapping[str, Cut], ...]

    @classmethod
    def of(cls, step: Region, schedule: Schedule) -> Carried:
        """What a loop of a schedule carries."""
        body = step.body
        folded, scanned = step.folded, step.scanned
        slots = tuple(body.slots[slot] for slot in body.outputs[: folded + scanned])
        folds, scans = _states(schedule, step.folds, slots[:folded]), _states(schedule, step.scans, slots[folded:])
        totals = body.inputs[len(body.inputs) - scanned :]
        ends = itertools.accumulate(leaves for _, leaves in step.scans)
        given = len(step.operands) - (len(body.inputs) - scanned)
        anew = frozenset(node for (node, _), end in zip(step.scans, ends, strict=True) if end > given)
        known = _cuts_of_states(body)
        cuts = tuple(known[node] for node, _ in step.folds)
        return cls(tuple(folds), tuple(scans), slots, totals, step.reverse, anew, step.axis, cuts)

    @property
    def folded(self) -> int:
        """The number of leaves of folds."""
        return len(self.slots) - len(self.totals)

    def first(self, starts: Sequence[Any] = ()) -> list[Any]:
        """The leaves before the first turn; scans over the mesh begin with what the devices before come to."""
        return varying_as([*identity(self.folds), *starts, *identity(self.scans)[len(starts) :]], self.slots)

    def entering(self, state: Sequence[Any]) -> dict[int, Any]:
        """The totals before a turn, by slot of the body."""
        return dict(zip(self.totals, state[self.folded :], strict=True))

    def turning(self, here: Here, number: Any) -> Here:
        """The place of a turn."""
        return here.beginning(self.loop, self.anew).turning(self.loop, number)

    def after(
        self, state: Sequence[Any], outputs: Sequence[Any], here: Here, number: Any, since: Any = None
    ) -> list[Any]:
        """The leaves after a turn, from those before it and what its body has made.

        Args:
          state: the leaves before.
          outputs: of the body.
          here: the device, outside of the loop.
          number: of the turn.
          since: the turn before which nothing was there but what an older run has come to; None is the first.
        """
        local = varying_as(outputs[: len(self.slots)], self.slots)
        since = first_turn(self.loop, reverse=self.reverse) if since is None else since
        begun, least = met_before(self.loop, number, since, reverse=self.reverse)
        there = [begun & filled | here.older for filled in self._filled(here, least)]
        some = self._filled(here, number)
        added = _accumulated(self.folds, list(state), local, there, some, reverse=self.reverse)
        return [*added, *local[self.folded :]]

    def joined(self, first: Sequence[Any], then: Sequence[Any], here: Here, least: Sequence[Any]) -> list[Any]:
        """The leaves of folds after two ranges of turns, from those of each.

        Args:
          first: the leaves after the turns that run first.
          then: those after the other turns alone.
          here: the device, outside of the loop.
          least: of both, the number of the lowest turn.
        """
        there, some = (self._filled(here, number) for number in least)
        return _accumulated(self.folds, list(first), list(then), there, some, reverse=self.reverse)

    def behind(self, number: int, before: Sequence[Any], own: Sequence[Any], there: Any) -> list[Any]:
        """The total of a scan over two ranges of turns, from that of each.

        Args:
          number: of the scan, among those that are carried.
          before: the leaves of the turns that run first.
          own: those of the turns behind them, alone.
          there: whether the turns that run first hold something; a boolean scalar.
        """
        shaped, _, carrier = self.scans[number]
        assert shaped.operation.monoid is not None
        arguments = (shaped.operation.monoid, shaped.state_tree, carrier)
        return merge_behind(*arguments, list(before), list(own), there, shaped.operation.reverse)

    def _filled(self, here: Here, number: Any) -> list[Any]:
        """For every state that is added up whether a turn holds something for it."""
        inside = here.turning(self.loop, number)
        return [is_filled(shaped, cuts, inside) for (shaped, *_), cuts in zip(self.folds, self.cuts, strict=True)]


def varying_as(leaves: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """The same leaves, varying over the mesh axes of their slots; extrema come with their counts."""
    pairs = zip(leaves, slots, strict=True)
    return [jax.tree.map(lambda part, slot=slot: vary(part, sorted(slot.varying)), leaf) for leaf, slot in pairs]


def _states(schedule: Schedule, carried: Sequence[tuple[int, int]], slots: Sequence[Slot]) -> list[State]:
    found: list[State] = []
    leaves = iter(slots)
    for node, _ in carried:
        shaped = states_on_device(schedule.graph.shaped(node))
        carrier = [tuple(name for name in axes if name != shaped.operation.over) for axes in shaped.carrier]
        own = [next(leaves) for _ in carrier]
        found.append((shaped, [jax.ShapeDtypeStruct(slot.local_shape, slot.type.dtype) for slot in own], carrier))
    return found


def _cuts_of_states(body: Schedule) -> dict[int, Mapping[str, Cut]]:
    """By node, how the dimensions of an operation are cut whose state loops add up."""
    found: dict[int, Mapping[str, Cut]] = {}
    for step in body.steps:
        if isinstance(step, Run) and step.carried:
            found[step.node] = dict(step.cuts)
        elif isinstance(step, Region):
            found |= _cuts_of_states(step.body)
    return found


def _accumulated(
    states: Sequence[State],
    before: list[Any],
    local: list[Any],
    filled_before: Sequence[Any],
    filled: Sequence[Any],
    *,
    reverse: bool,
) -> list[Any]:
    total: list[Any] = []
    for (shaped, _, carrier), there, some in zip(states, filled_before, filled, strict=True):
        own = slice(len(total), len(total) + len(carrier))
        total += accumulate(shaped, carrier, before[own], local[own], there, some, reverse=reverse)
    return total


def identity(states: Sequence[State]) -> list[Any]:
    """The leaves of states of no element."""
    units: list[Any] = []
    for shaped, like, carrier in states:
        assert shaped.operation.monoid is not None
        unit = identity_block(shaped.operation.monoid, shaped.state_tree, carrier, like)
        units += unit if shaped.operation.over is not None else without_elements(shaped, unit)
    return units
