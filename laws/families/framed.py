"""The laws of frames: once a reference point is known, states are plain sums, whatever the reference point."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from combinators.merging.frame import Frame
from laws.law import Law, drawn
from laws.subjects.carrier import UNITS
from laws.subjects.carrier import MonoidSubject as Monoid

SOURCE = "original; Milakov, Gimelshein 2018 and Chan, Golub, LeVeque 1983 are cases"


def fold(s: Monoid, a: Any, b: Any, c: Any, unit: Any) -> tuple[Any, Any]:
    """Fold three states through the frame and by the monoid."""
    states = [a, b, c]
    return s.observe(_through(s, states, _reference(s, states), unit)), s.observe(s.fold(states))


def independence(s: Monoid, a: Any, b: Any, c: Any, shift: Any, unit: Any) -> tuple[Any, Any]:
    """Fold three states through a frame at another reference point."""
    states = [a, b, c]
    moved = jax.tree.map(
        lambda f: f + shift.astype(f.dtype) if jnp.issubdtype(f.dtype, jnp.inexact) else f, _reference(s, states)
    )
    return s.observe(_through(s, states, moved, unit)), s.observe(s.fold(states))


def gradient(s: Monoid, a: Any, b: Any, c: Any, unit: Any) -> tuple[Any, Any]:
    """Differentiate the fold through the frame, its reference point stopped, and the fold by the monoid."""

    def framed(states: list[Any]) -> Any:
        return s.observe(_through(s, states, jax.lax.stop_gradient(_reference(s, states)), unit))

    def folded(states: list[Any]) -> Any:
        return s.observe(s.fold(states))

    return _slopes(framed, [a, b, c]), _slopes(folded, [a, b, c])


def _frame(s: Monoid) -> Frame:
    assert s.monoid.frame is not None
    return s.monoid.frame


def _reference(s: Monoid, states: list[Any]) -> Any:
    frame = _frame(s)
    total = frame.summary(states[0])
    for state in states[1:]:
        total = frame.merge_summaries(total, frame.summary(state))
    return jax.tree.map(jnp.asarray, frame.at(total))


def _through(s: Monoid, states: list[Any], reference: Any, unit: Any) -> Any:
    """Fold through the frame. Every addend, and the reference, is multiplied by an entry of `unit`, which is 1.

    Addends can be larger than the state that they are restored to, by any amount that the reference is off. Their
    rounding is then no property of the states; the derivative by `unit` brings it into the bound.
    """
    frame = _frame(s)
    leaves, tree = jax.tree.flatten(reference)
    reference = jax.tree.unflatten(tree, [_times(x, unit[-1 - i]) for i, x in enumerate(leaves)])
    factors = itertools.cycle(unit[i] for i in range(UNITS - len(leaves)))
    addends = [jax.tree.map(lambda x: _times(x, next(factors)), frame.express(state, reference)) for state in states]
    return frame.restore(reference, jax.tree.map(lambda *xs: reduce(jnp.add, xs), *addends))


def _times(x: Any, factor: Any) -> Any:
    return x * factor.astype(x.dtype) if jnp.issubdtype(jnp.result_type(x), jnp.inexact) else x


def _slopes(function: Callable[[list[Any]], Any], states: list[Any]) -> list[Any]:
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, states))
    inexact = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]

    def flat(xs: list[Any]) -> list[Any]:
        given = iter(xs)
        filled = [next(given) if is_inexact else leaf for leaf, is_inexact in zip(leaves, inexact, strict=True)]
        results = jax.tree.leaves(function(jax.tree.unflatten(tree, filled)))
        return [leaf for leaf in results if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    values, pull = jax.vjp(flat, [leaf for leaf, is_inexact in zip(leaves, inexact, strict=True) if is_inexact])
    # Different cotangents, so that slopes of different results cannot make up for each other.
    return pull([jnp.full_like(value, 1 + i) for i, value in enumerate(values)])[0]


def _applies(s: Monoid) -> str | None:
    return f"`{s.name}` declares no frame" if s.monoid.frame is None else None


_UNIT = drawn("unit", "unit")
_STATES = drawn("state", "a b c")

LAWS = (
    Law(
        "monoid.frame",
        "restore(F, sum of express(s, F)) ~ a + b + c",
        SOURCE,
        fold,
        _STATES + _UNIT,
        _applies,
        depth=4,
        scaled_by=0,
        is_composed=True,
    ),
    Law(
        "monoid.frame_independence",
        "restore(G, sum of express(s, G)) ~ a + b + c, with G = F + shift",
        SOURCE,
        independence,
        _STATES + drawn("shift", "shift") + _UNIT,
        _applies,
        depth=4,
        scaled_by=0,
        is_composed=True,
    ),
    Law(
        "monoid.frame_gradient",
        "d restore(stop(F), sum of express(s, stop(F))) ~ d(a + b + c)",
        SOURCE,
        gradient,
        _STATES + _UNIT,
        _applies,
        depth=8,
        scaled_by=0,
        is_composed=True,
    ),
)
