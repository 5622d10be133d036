"""An aggregator and the types of its elements: what the laws of aggregators speak about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.aggregation.aggregator import Aggregator
from laws.draws import states as programs
from laws.draws.cells import is_dyadic, show_cell, type_name
from laws.subject import Recipe, Subject
from laws.subjects.carrier import Carrier

COUNT = 5
"""Elements that are drawn for every example."""


@final
class AggregatorSubject(Subject):
    """An aggregator and the types of its elements.

    Args:
      aggregator: whose laws are checked.
      carrier: how elements are drawn.
      name: what messages call it.
    """

    def __init__(self, aggregator: Aggregator, carrier: Carrier, name: str) -> None:
        super().__init__(name)
        self.aggregator, self.carrier, self.elements = aggregator, carrier, carrier.elements
        # Jitted once for all laws; `many` once for every number of elements.
        self.many: Callable[..., Any] = jax.jit(aggregator.lift_many)
        self.lift: Callable[..., Any] = jax.jit(aggregator.lift)
        self.add: Callable[[Any, Any], Any] = jax.jit(aggregator.monoid.merge)
        self.present: Callable[[Any], Any] = jax.jit(aggregator.present)
        self.mapped: Callable[..., Any] = jax.jit(jax.vmap(aggregator.run))

    @property
    def families(self) -> tuple[str, ...]:
        """The laws of aggregators."""
        return ("aggregator",)

    @property
    def types(self) -> str:
        """The types of one element."""
        return ", ".join(map(type_name, self.elements))

    @property
    def depth(self) -> float:
        """One operation for every element."""
        return float(COUNT)

    @property
    def is_composed(self) -> bool:
        """Lifting, merging and presenting are steps: a kurtosis is a difference that loses digits of its own."""
        return True

    def once(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the aggregator's inputs, jitted by its first caller."""
        return self.cache.setdefault(f"{name} once", jax.jit(function))

    def identity_like(self, state: Any) -> Any:
        """The identity in the dtypes of a state."""
        return self.aggregator.monoid.identity_for(state)

    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Draw `elements`: a fixed number of them."""
        del kind
        element = self.carrier.leaves(domain).map(lambda program: program[1:])
        return st.lists(element, min_size=COUNT, max_size=COUNT)

    def build(self, kind: str, recipe: Recipe) -> tuple[Any, ...]:
        """Stack the elements of every input along a leading axis."""
        del kind
        rows = [programs.build_element(self.elements, element) for element in recipe]
        return tuple(np.stack(column) for column in zip(*rows, strict=True))

    def read(self, kind: str, recipe: Recipe) -> None:
        """Fill the arrays, of the number of elements that every law counts on."""
        if len(recipe) != COUNT:
            raise ValueError(f"expected {COUNT} elements, got {len(recipe)}")
        self.build(kind, recipe)

    def show(self, kind: str, recipe: Recipe) -> str:
        """The elements in order."""
        del kind
        return ", ".join(show_cell(element[0] if len(element) == 1 else element) for element in recipe)

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether all elements are integers or short dyadic fractions."""
        del kind
        return is_dyadic(recipe)
