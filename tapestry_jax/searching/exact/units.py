"""Layers that stand one by one and are computed again: the scopes of their steps and values."""

from __future__ import annotations

from dataclasses import replace

from combinators.frozen import dataclass
from tapestry_jax.searching.exact.classes import own_arguments
from tapestry_jax.searching.exact.homes import Scope


@dataclass(frozen=True)
class Units:
    """The scopes of a schedule's steps: of layers one by one that are computed again, and of all else.

    Attributes:
      rest: of all else.
      again: of these layers, each of which has its share of what is kept for one of them.
      steps: the numbers of their steps.
      slots: what they make and nobody reads outside.
    """

    rest: Scope
    again: Scope
    steps: frozenset[int]
    slots: frozenset[int]

    @staticmethod
    def of(scope: Scope) -> Units:
        """Those of a schedule; without such layers all is the rest."""
        schedule = scope.schedule
        units = schedule.again
        if not units:
            return Units(scope, scope, frozenset(), frozenset())
        again = replace(
            scope,
            again=scope.again + 1,
            turns=scope.turns / len(units),
            received=max(scope.received, 1),
            sources=own_arguments(schedule),
        )
        steps = frozenset(number for unit in units for number in range(unit.first, unit.end))
        return Units(scope, again, steps, frozenset[int]().union(*schedule.made_for_itself()))

    def of_step(self, number: int) -> Scope:
        """The scope of a step."""
        return self.again if number in self.steps else self.rest

    def of_slot(self, slot: int) -> Scope:
        """The scope of a value: that of a unit where nobody reads it outside."""
        return self.again if slot in self.slots else self.rest
