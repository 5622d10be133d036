"""The carrier of a monoid: how its states are made, when two of them are equal, and what range they cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from random import Random
from typing import Any, final

import jax
import numpy as np
from hypothesis import Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.merging.monoid import Monoid
from laws.draws import states as programs
from laws.draws.cells import Struct, build_cell, cells, extremes, show_cell, type_name
from laws.draws.listed import as_entries
from laws.subject import Recipe, Subject

UNITS = 16
"""Most leaves whose rounding `unit` arguments follow."""


def first_of(values: Sequence[Any] | SearchStrategy[Any] | None) -> Any:
    """One of listed or drawn values, to see their type.

    Raises:
      hypothesis.errors.NoSuchExample: when a strategy yields nothing.
    """
    if isinstance(values, SearchStrategy):
        quick = settings(
            max_examples=100, database=None, deadline=None, phases=(Phase.generate,), verbosity=Verbosity.quiet
        )
        return find(values, lambda _: True, settings=quick, random=Random(0))
    assert values is not None
    return values[0]


def same_state(state: Any) -> Any:
    """Compare states leaf by leaf: the equality of a carrier where every state has one form."""
    return state


@final
@dataclass(frozen=True)
class Carrier:
    """How states are drawn and compared.

    Args:
      elements: types of what `lift` takes.
      lift: cells of one element -> state.
      values: what to draw, as a list or a hypothesis strategy: elements where there is a `lift`, states where not.
      state: where there is no `lift`, the type of a state, as a pytree of `jax.ShapeDtypeStruct`.
      observe: state -> what counts of it. Two states are equal where this is: the carrier's declared equality.
      special: for each element further values with a meaning of their own, such as `-inf` for a masked score.
      infinite: whether elements may be infinite or NaN; the identity then has to keep these, too.
    """

    elements: tuple[Struct, ...] = ()
    lift: Callable[..., Any] | None = None
    values: Sequence[Any] | SearchStrategy[Any] | None = None
    observe: Callable[[Any], Any] = same_state
    special: tuple[tuple[float, ...], ...] = ()
    infinite: bool = False
    state: Any = None

    @cached_property
    def cell_type(self) -> Any:
        """The type of a state: a pytree of `jax.ShapeDtypeStruct`."""
        return self.state if self.lift is None else jax.eval_shape(self.lift, *self.elements)

    def leaves(self, domain: str) -> SearchStrategy[programs.Program]:
        """Programs of one operation: an element of a domain, lifted, or a given value."""
        if self.values is None:
            return programs.lifts(self.elements, self.special, domain)
        drawn = self.values if isinstance(self.values, SearchStrategy) else st.sampled_from(list(self.values))
        operation, types = ("value", jax.tree.leaves(self.state)) if self.lift is None else ("lift", self.elements)
        return drawn.map(lambda given: [operation, *as_entries("values", given, types)])


@final
class MonoidSubject(Subject):
    """A monoid and a carrier.

    Args:
      monoid: whose laws are checked.
      carrier: how its states are made.
      name: what messages call it.
    """

    def __init__(self, monoid: Monoid, carrier: Carrier, name: str) -> None:
        super().__init__(name)
        self.monoid, self.carrier = monoid, carrier
        # Jitted once for all laws: what they spend on compiling is one `combine`, and not one an equation.
        self.add: Callable[[Any, Any], Any] = jax.jit(monoid.merge)
        self.observe: Callable[[Any], Any] = same_state if carrier.observe is same_state else jax.jit(carrier.observe)
        self.mapped: Callable[[Any, Any], Any] = jax.jit(jax.vmap(monoid.merge))
        self.fold_stacked: Callable[[Any], Any] = jax.jit(monoid.fold_stacked)
        self._lift = None if carrier.lift is None else jax.jit(carrier.lift)

    @property
    def families(self) -> tuple[str, ...]:
        """The laws of monoids."""
        return ("monoid",)

    @property
    def types(self) -> str:
        """The types of the elements, or of the state's leaves."""
        listed = self.carrier.elements if self.carrier.lift is not None else jax.tree.leaves(self.carrier.cell_type)
        return ", ".join(type_name(struct) for struct in listed)

    @cached_property
    def identity(self) -> Any:
        """The identity of the carrier's cell, as NumPy arrays."""
        # Asked for the first time by a law that is being compiled, it has to be numbers still.
        with jax.ensure_compile_time_eval():
            return jax.tree.map(np.asarray, self.monoid.identity_for(self.carrier.cell_type))

    def identity_like(self, state: Any) -> Any:
        """The identity in the dtypes of a state, also where these are wider than the carrier's."""
        known = jax.tree.leaves(self.identity)
        if [leaf.dtype for leaf in jax.tree.leaves(state)] == [leaf.dtype for leaf in known]:
            return self.identity
        return self.monoid.identity_for(state)

    def fold(self, states: Sequence[Any]) -> Any:
        """Combine states from the left."""
        return reduce(self.add, states)

    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Draw a `state`, an `extreme` state, a `shift` of a frame, or a `unit`."""
        match kind:
            case "state":
                return programs.programs(self.carrier.leaves(domain))
            case "extreme":
                if self.carrier.values is not None:
                    return self.carrier.leaves(domain)
                ends = [cells(e, extremes(e.dtype, self.carrier.infinite)) for e in self.carrier.elements]
                return st.tuples(*ends).map(lambda element: ["lift", *element])
            case "shift":
                return st.integers(-8, 8).map(lambda n: n / 2)
            case _:
                return st.just(None)

    def build(self, kind: str, recipe: Recipe) -> Any:
        """Run the program of a state."""
        if kind == "shift":
            return np.float32(recipe)
        if kind == "unit":
            return np.ones(UNITS, np.float32)
        return programs.build_state(
            recipe, identity=lambda: self.identity, lift=self._lifted, value=self._value, combine=self.add
        )

    def read(self, kind: str, recipe: Recipe) -> None:
        """Read the program of a state without running it."""
        if kind in ("shift", "unit"):
            self.build(kind, recipe)
            return
        programs.build_state(
            recipe,
            identity=lambda: None,
            lift=lambda *element: programs.build_element(self.carrier.elements, element),
            value=self._value,
            combine=lambda left, right: None,
        )

    def show(self, kind: str, recipe: Recipe) -> str:
        """The program of a state."""
        if kind == "unit":
            return "1"
        return show_cell(recipe) if kind == "shift" else programs.show_state(recipe)

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether all elements are integers or short dyadic fractions."""
        return kind not in ("state", "extreme") or programs.is_exact_state(recipe)

    def _lifted(self, *element: Any) -> Any:
        assert self._lift is not None
        return self._lift(*programs.build_element(self.carrier.elements, element))

    def _value(self, leaves: Sequence[Any]) -> Any:
        types, tree = jax.tree.flatten(self.carrier.cell_type)
        return jax.tree.unflatten(tree, [build_cell(t, leaf) for t, leaf in zip(types, leaves, strict=True)])
