"""How states are made: as the user says, as is known of what ships, or, for single numbers, as themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
from hypothesis.errors import NoSuchExample, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from combinators.aggregation.aggregator import Aggregator
from combinators.errors import TapestryError, first_line, message
from combinators.index_space.tensor_type import type_of
from combinators.merging.monoid import Monoid
from laws.draws.cells import BOOL, F32, I32, Struct, type_name, why_not_drawn
from laws.draws.listed import as_entries, described_value, value_type
from laws.errors import LawError
from laws.subject import Subject
from laws.subjects.aggregator import AggregatorSubject
from laws.subjects.carrier import Carrier, MonoidSubject, first_of, same_state
from laws.subjects.elements import elements_of, first_lifted
from laws.subjects.examples import examples_of, itself, pair


class Ask(Protocol):
    """What a user says of the states of a piece."""

    @property
    def types(self) -> Sequence[Any] | None:
        """Types of the elements, or of the state's leaves."""
        ...

    @property
    def lift(self) -> Callable[..., Any] | None:
        """Cells of one element -> state."""
        ...

    @property
    def values(self) -> Any:
        """Elements or states, as a list or a strategy."""
        ...

    @property
    def observe(self) -> Callable[[Any], Any] | None:
        """State -> what counts of it."""
        ...

    @property
    def called(self) -> str:
        """The name of the piece."""
        ...


def structs(types: Sequence[Any]) -> tuple[Struct, ...]:
    """The types without names.

    Raises:
      LawError: when numbers of a type are not drawn.
      GraphError: when one is no type.
    """
    found = [kind if hasattr(kind, "dtype") else type_of(kind, "an entry of types=") for kind in types]
    problems = [why for kind in found if (why := why_not_drawn(kind.dtype)) is not None]
    if problems:
        raise LawError(message("laws: a type cannot be drawn.", *problems, remedy="Pass types of real numbers."))
    return tuple(Struct(tuple(kind.shape), kind.dtype) for kind in found)


def monoid_subjects(asked: Ask, monoid: Monoid) -> list[MonoidSubject]:
    """A monoid with every way that is known to make its states.

    Raises:
      LawError: when none is known, what is drawn is no pytree of arrays, or the identity is no such state.
    """
    carriers = [_valid(asked, carrier) for carrier in carriers_of(asked, monoid)]
    for carrier in carriers:
        check_identity(asked.called, monoid, carrier.cell_type)
    return [MonoidSubject(monoid, carrier, asked.called) for carrier in carriers]


def _valid(asked: Ask, carrier: Carrier) -> Carrier:
    """Look at the type of a state once, where an error can still name what is wrong."""
    try:
        leaves = jax.tree.leaves(carrier.cell_type)
    except Exception as error:
        raise LawError(
            message(
                f"`{asked.called}`: a state is no pytree of arrays, or cannot be made.",
                f"elements {', '.join(map(str, carrier.elements)) or 'as values'}",
                first_line(error),
                remedy="Make states of numbers and arrays; pass types=[one for every input of lift].",
            )
        ) from error
    if not leaves:
        raise LawError(
            message(f"`{asked.called}`: a state holds no array.", remedy="Return one array or more from lift.")
        )
    return carrier


def check_identity(called: str, monoid: Monoid, cell_type: Any, *remarks: str) -> None:
    """Make the identity once, where an error is told once and whole; else every law would fail by it.

    Args:
      called: the name of the piece.
      monoid: whose identity it is.
      cell_type: type of a state.
      remarks: further lines of the message.

    Raises:
      LawError: when it raises, or is no state of the type.
    """
    try:
        jax.eval_shape(lambda: monoid.identity_for(cell_type))
    except Exception as error:
        is_ours = isinstance(error, TapestryError)
        raise LawError(
            message(
                f"`{called}`: the identity cannot be made for its states.",
                f"state  {', '.join(map(type_name, jax.tree.leaves(cell_type)))}",
                *remarks,
                f"{type(error).__name__}: {error}",
                remedy=None if is_ours else "Give numbers as identity, or a function of the state's type.",
            ),
            law="monoid.structure",
        ) from error


def drawn_type(asked: Ask) -> Any:
    """The type of given values: a pytree, with the dtypes that the user says or, without, that they have.

    Raises:
      LawError: when there are none, or one is no pytree of arrays or not like the others.
    """
    values = asked.values
    if isinstance(values, SearchStrategy):
        try:
            found = described_value(asked.called, "the value", first_of(values))
        except (NoSuchExample, Unsatisfiable) as error:
            raise _no_values(asked, "Pass a strategy that yields something.") from error
    elif not len(values):
        raise _no_values(asked, "Pass one or more.")
    else:
        found = value_type(asked.called, values)
    leaves, tree = jax.tree.flatten(found)
    if asked.types is not None:
        leaves = structs(asked.types)
    for value in () if isinstance(values, SearchStrategy) else values:
        as_entries(asked.called, value, leaves)
    return found if len(leaves) != tree.num_leaves else jax.tree.unflatten(tree, leaves)


def _no_values(asked: Ask, remedy: str) -> LawError:
    return LawError(message(f"`{asked.called}`: there are no values.", remedy=remedy))


def carriers_of(asked: Ask, monoid: Monoid) -> Sequence[Carrier]:
    """How states of a monoid are made: as the user says, as known, or, for one number, as itself."""
    observe = asked.observe if asked.observe is not None else same_state
    known = examples_of(monoid)
    if asked.values is not None:
        kind = drawn_type(asked)
        if asked.lift is None:
            return (Carrier(values=asked.values, observe=observe, state=kind),)
        return (Carrier(tuple(jax.tree.leaves(kind)), asked.lift, asked.values, observe),)
    if asked.lift is not None:
        # What is wrong with a lift of single numbers is told by `_valid`.
        elements = structs(asked.types) if asked.types is not None else (first_lifted(asked.lift) or ((F32,), ()))[0]
        return (Carrier(elements, asked.lift, observe=observe),)
    if asked.types is not None:
        elements = structs(asked.types)
        if known:
            return (dataclasses.replace(known[0], elements=elements),)
        lift = itself if len(elements) == 1 else pair if len(elements) == 2 else _as_tuple
        return (Carrier(elements, lift, observe=observe),)
    if known:
        return known if asked.observe is None else [dataclasses.replace(c, observe=observe) for c in known]
    identity = monoid.identity
    if isinstance(identity, bool):
        return (Carrier((BOOL,), itself, observe=observe),)
    may_be_number = isinstance(identity, int | float) or callable(identity)
    problem = _why_not_combined(monoid, F32) if may_be_number else None
    if may_be_number and problem is None:
        check_identity(asked.called, monoid, F32, "states of other types are checked with types= or lift=")
        carriers = [Carrier((F32,), itself, observe=observe)]
        return carriers if not isinstance(identity, int) else [*carriers, Carrier((I32,), itself, observe=observe)]
    raise LawError(
        message(
            f"it is not known how states of `{asked.called}` are made.",
            "states are drawn by operations (identity, lift and combine), since raw ones may be reached by no fold",
            *([f"of two numbers combine gives no state: {problem}"] if problem is not None else []),
            remedy="Pass lift=(a function of one element), or values=[states], or types=[types of the state's leaves].",
        )
    )


def _why_not_combined(monoid: Monoid, cell: Struct) -> str | None:
    """Why a state can be no single number, or None; an identity of 0 may stand for a tuple of zeros as well."""
    try:
        jax.eval_shape(monoid.merge, cell, cell)
    except Exception as error:  # noqa: BLE001 - a user's combine may raise anything
        return first_line(error)
    return None


def _as_tuple(*elements: Any) -> Any:
    return elements


def aggregator_subjects(asked: Ask, aggregator: Aggregator) -> list[Subject]:
    """An aggregator, and its monoid with the states that its `lift` makes."""
    known = examples_of(aggregator.monoid)
    special: tuple[tuple[float, ...], ...] = ()
    if asked.values is not None:
        elements = tuple(jax.tree.leaves(drawn_type(asked)))
    elif asked.types is not None:
        elements = structs(asked.types)
    else:
        elements, special = elements_of(asked.called, aggregator.lift, aggregator.monoid)
    observe = asked.observe or (known[0].observe if known else aggregator.present)
    infinite = all(carrier.infinite for carrier in known) if known else False
    carrier = _valid(asked, Carrier(elements, aggregator.lift, asked.values, observe, special, infinite))
    check_identity(asked.called, aggregator.monoid, carrier.cell_type)
    return [
        AggregatorSubject(aggregator, carrier, asked.called),
        MonoidSubject(aggregator.monoid, carrier, asked.called),
    ]
