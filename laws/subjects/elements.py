"""Which elements a `lift` takes, where nobody says so: found from how it is made, else by trying."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from combinators.aggregation.functions import Fork
from combinators.aggregation.grouped import KeyedLift, MaskedLift
from combinators.aggregation.inputs import count_inputs
from combinators.aggregation.segments import Flags, SegmentLift
from combinators.errors import first_line, message
from combinators.merging.monoid import Monoid
from laws.draws.cells import BOOL, F32, I32, Struct, type_name
from laws.errors import LawError
from laws.subjects.examples import examples_of

MOST_TRIED = 4
"""Inputs of which every one is tried as float, integer and boolean."""

Special = tuple[tuple[float, ...], ...]
Elements = tuple[tuple[Struct, ...], Special]
"""Types of the inputs, and special values of the first of them."""


def elements_of(called: str, lift: Callable[..., Any], monoid: Monoid | None = None) -> Elements:
    """Types of one element of every input that `lift` takes.

    What selects (masks, flags, keys, labels) is boolean or integer; then come the types of the monoid's examples; then
    single numbers, floats before integers before booleans.

    Args:
      called: the name of the piece.
      lift: cells of one element -> state.
      monoid: of the states; None where it is not known.

    Returns:
      Types that `lift` takes, and special values for them.

    Raises:
      LawError: when it takes none of these.
    """
    problem = ""
    for elements, special in _candidates(lift, monoid):
        error = _why_not_lifted(lift, elements)
        if error is None:
            return elements, special
        problem = problem or f"lift of {', '.join(map(type_name, elements))}: {first_line(error)}"
    raise LawError(
        message(
            f"it is not known which elements `{called}` takes.",
            problem,
            remedy="Pass types=[one for every input of lift], such as jax.ShapeDtypeStruct((3,), jnp.float32).",
        )
    )


def first_lifted(lift: Callable[..., Any], monoid: Monoid | None = None) -> Elements | None:
    """The first types that a lift takes, as in `elements_of`; None where it takes none."""
    return next((found for found in _candidates(lift, monoid) if _why_not_lifted(lift, found[0]) is None), None)


def _candidates(lift: Callable[..., Any], monoid: Monoid | None) -> Iterator[Elements]:
    yield from _by_construction(lift, monoid)
    count = count_inputs(lift)
    for size in (1, 2) if count is None else (max(1, count),):
        if size > MOST_TRIED:
            yield (F32,) * size, ()
        else:
            yield from ((tried, ()) for tried in itertools.product((F32, I32, BOOL), repeat=size))


def _by_construction(lift: Callable[..., Any], monoid: Monoid | None) -> Iterator[Elements]:
    """Types that follow from the parts that a lift is made of."""
    if isinstance(lift, MaskedLift):
        yield from _selected(lift.lift, lift.monoid, None if lift.split.selector else BOOL)
    elif isinstance(lift, KeyedLift):
        yield from _selected(lift.lift, lift.monoid, None if lift.split.selector else I32)
    elif isinstance(lift, SegmentLift):
        selects = BOOL if isinstance(lift.kind, Flags) else I32
        yield from _selected(lift.lift, None, None if lift.kind.split.selector else selects)
    elif isinstance(lift, Fork):
        parts = monoid.parts if monoid is not None and len(monoid.parts) == len(lift.functions) else None
        found = [first_lifted(part, parts[i] if parts else None) for i, part in enumerate(lift.functions)]
        longest = max((each for each in found if each is not None), key=lambda each: len(each[0]), default=None)
        if longest is not None:
            yield longest
    if monoid is not None:
        yield from ((carrier.elements, carrier.special) for carrier in examples_of(monoid))


def _selected(lift: Callable[..., Any], monoid: Monoid | None, selects: Struct | None) -> Iterator[Elements]:
    """What the inner lift takes, and behind it what selects; a labelling function may want other types, so all come."""
    for elements, special in _candidates(lift, monoid):
        if _why_not_lifted(lift, elements) is None:
            yield (elements if selects is None else (*elements, selects)), special


def _why_not_lifted(lift: Callable[..., Any], elements: tuple[Struct, ...]) -> Exception | None:
    try:
        jax.eval_shape(lift, *elements)
    except Exception as error:  # noqa: BLE001 - a user's lift may raise anything
        return error
    return None
