"""How states are made: as the user says, as is known of what ships, or, for single numbers, as themselves."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from hypothesis.errors import NoSuchExample, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from combinators.aggregator import Aggregator
from combinators.errors import message
from combinators.monoid import Monoid
from laws.aggregator import AggregatorSubject
from laws.carrier import Carrier, MonoidSubject, first_of, same_state, struct_of
from laws.cells import Struct, type_name
from laws.errors import LawError, first_line
from laws.examples_of import examples_of, itself, pair
from laws.subject import Subject

F32, I32 = Struct((), jnp.float32), Struct((), jnp.int32)


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
    """The types without names."""
    return tuple(Struct(tuple(kind.shape), kind.dtype) for kind in types)


def monoid_subjects(asked: Ask, monoid: Monoid) -> list[MonoidSubject]:
    """A monoid with every way that is known to make its states.

    Raises:
      LawError: when none is known, or what is drawn is no pytree of arrays.
    """
    return [MonoidSubject(monoid, _valid(asked, carrier), asked.called) for carrier in carriers_of(asked, monoid)]


def _valid(asked: Ask, carrier: Carrier) -> Carrier:
    """Look at the type of a state once, where an error can still name what is wrong."""
    try:
        leaves = jax.tree.leaves(carrier.cell_type)
    except (NoSuchExample, Unsatisfiable) as error:
        raise _no_values(asked) from error
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


def drawn_elements(asked: Ask) -> tuple[Struct, ...]:
    """The types of given elements: as the user says, or as the first one has them.

    Raises:
      LawError: when a strategy yields nothing, or what is no array.
    """
    if asked.types is not None:
        return structs(asked.types)
    try:
        return tuple(struct_of(leaf) for leaf in jax.tree.leaves(first_of(asked.values)))
    except (NoSuchExample, Unsatisfiable) as error:
        raise _no_values(asked) from error
    except TypeError as error:
        raise LawError(
            message(f"`{asked.called}`: an element is no array.", str(error), remedy="Draw numbers and arrays.")
        ) from error


def _no_values(asked: Ask) -> LawError:
    return LawError(message(f"`{asked.called}`: there are no values.", remedy="Pass a strategy that yields something."))


def carriers_of(asked: Ask, monoid: Monoid) -> Sequence[Carrier]:
    """How states of a monoid are made: as the user says, as known, or, for one number, as itself."""
    observe = asked.observe if asked.observe is not None else same_state
    known = examples_of(monoid)
    if asked.values is not None:
        if not isinstance(asked.values, SearchStrategy) and not len(asked.values):
            raise LawError(message(f"`{asked.called}`: there are no values.", remedy="Pass one state or more."))
        if asked.lift is None:
            return (Carrier(values=asked.values, observe=observe),)
        return (Carrier(drawn_elements(asked), asked.lift, asked.values, observe),)
    if asked.lift is not None:
        count = _arity(asked.lift)
        elements = structs(asked.types) if asked.types is not None else (F32,) * count
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
        return (Carrier((Struct((), jnp.bool_),), itself, observe=observe),)
    problem = _why_not_combined(monoid, F32) if isinstance(identity, int | float) else None
    if isinstance(identity, int | float) and problem is None:
        carriers = [Carrier((F32,), itself, observe=observe)]
        return carriers if isinstance(identity, float) else [*carriers, Carrier((I32,), itself, observe=observe)]
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
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        return first_line(error)
    return None


def _as_tuple(*elements: Any) -> Any:
    return elements


def aggregator_subjects(asked: Ask, aggregator: Aggregator) -> list[Subject]:
    """An aggregator, and its monoid with the states that its `lift` makes."""
    known = examples_of(aggregator.monoid)
    special: tuple[tuple[float, ...], ...] = ()
    if asked.values is not None:
        elements = drawn_elements(asked)
    elif asked.types is not None:
        elements = structs(asked.types)
    else:
        elements, special = _elements(asked, aggregator, known)
    observe = asked.observe or (known[0].observe if known else aggregator.present)
    infinite = all(carrier.infinite for carrier in known) if known else False
    carrier = Carrier(elements, aggregator.lift, asked.values, observe, special, infinite)
    return [
        AggregatorSubject(aggregator, carrier, asked.called),
        MonoidSubject(aggregator.monoid, _valid(asked, carrier), asked.called),
    ]


def _elements(
    asked: Ask, aggregator: Aggregator, known: Sequence[Carrier]
) -> tuple[tuple[Struct, ...], tuple[tuple[float, ...], ...]]:
    """Types that `lift` takes: those of its monoid's examples, or numbers."""
    candidates = [(carrier.elements, carrier.special) for carrier in known]
    candidates += [((F32,) * count, ()) for count in (_arity(aggregator.lift), 1, 2)]
    problem = ""
    for elements, special in candidates:
        try:
            jax.eval_shape(aggregator.lift, *elements)
        except (TypeError, ValueError, AttributeError) as error:
            problem = problem or f"lift of {', '.join(map(type_name, elements))}: {first_line(error)}"
            continue
        return elements, special
    raise LawError(
        message(
            f"it is not known which elements `{asked.called}` takes.",
            problem,
            remedy="Pass types=[one jax.ShapeDtypeStruct for every input of lift].",
        )
    )


def _arity(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return max(1, sum(p.kind in kinds and p.default is p.empty for p in parameters))
