"""What a loop in time carries from turn to turn: the states of its folds, and the totals of its scans."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.merging.blocks import identity_block
from tapestry_jax.lowering.on_device.attained import without_elements
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.lowering.time.accumulate import accumulate
from tapestry_jax.lowering.time.framed import State
from tapestry_jax.planning.geometry.time_axis import turns_of
from tapestry_jax.planning.scheduling.schedule import Region, Schedule, Slot


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
    """

    folds: tuple[State, ...]
    scans: tuple[State, ...]
    slots: tuple[Slot, ...]
    totals: tuple[int, ...]
    reverse: bool
    anew: frozenset[int]
    loop: str

    @classmethod
    def of(cls, step: Region, schedule: Schedule) -> Carried:
        """What a loop of a schedule carries."""
        body = step.body
        folded, scanned = (sum(leaves for _, leaves in kind) for kind in (step.folds, step.scans))
        slots = tuple(body.slots[slot] for slot in body.outputs[: folded + scanned])
        folds, scans = _states(schedule, step.folds, slots[:folded]), _states(schedule, step.scans, slots[folded:])
        totals = body.inputs[len(body.inputs) - scanned :]
        ends = itertools.accumulate(leaves for _, leaves in step.scans)
        given = len(step.operands) - (len(body.inputs) - scanned)
        anew = frozenset(node for (node, _), end in zip(step.scans, ends, strict=True) if end > given)
        return cls(tuple(folds), tuple(scans), slots, totals, step.reverse, anew, step.axis)

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

    def after(self, state: Sequence[Any], outputs: Sequence[Any], number: Any, older: Any = False) -> list[Any]:
        """The leaves after a turn, from those before it and what its body has made.

        Args:
          state: the leaves before.
          outputs: of the body.
          number: of the turn.
          older: whether an older run has come to what was there before the first turn.
        """
        local = varying_as(outputs[: len(self.slots)], self.slots)
        there = (number != (turns_of(self.loop) - 1 if self.reverse else 0)) | older
        added = _accumulated(self.folds, list(state), local, there, reverse=self.reverse)
        return [*added, *local[self.folded :]]


def varying_as(leaves: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """The same leaves, varying over the mesh axes of their slots; extrema come with their counts."""
    pairs = zip(leaves, slots, strict=True)
    return [jax.tree.map(lambda part, slot=slot: vary(part, sorted(slot.varying)), leaf) for leaf, slot in pairs]


def _states(schedule: Schedule, carried: Sequence[tuple[int, int]], slots: Sequence[Slot]) -> list[State]:
    found: list[State] = []
    leaves = iter(slots)
    for node, _ in carried:
        shaped = schedule.graph.shaped(node)
        carrier = [tuple(name for name in axes if name != shaped.operation.over) for axes in shaped.carrier]
        own = [next(leaves) for _ in carrier]
        found.append((shaped, [jax.ShapeDtypeStruct(slot.local_shape, slot.type.dtype) for slot in own], carrier))
    return found


def _accumulated(
    states: Sequence[State], before: list[Any], local: list[Any], there: Any, *, reverse: bool
) -> list[Any]:
    total: list[Any] = []
    for shaped, _, carrier in states:
        own = slice(len(total), len(total) + len(carrier))
        total += accumulate(shaped, carrier, before[own], local[own], there, reverse=reverse)
    return total


def identity(states: Sequence[State]) -> list[Any]:
    """The leaves of states of no element."""
    units: list[Any] = []
    for shaped, like, carrier in states:
        assert shaped.operation.monoid is not None
        unit = identity_block(shaped.operation.monoid, shaped.state_tree, carrier, like)
        units += unit if shaped.operation.over is not None else without_elements(shaped, unit)
    return units
