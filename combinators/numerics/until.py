"""Turns until a flag holds: a loop whose length depends on data.

Its derivative forwards is that of the turns that were taken. Backwards there is none: what each turn would have to keep
has a size that nobody knows. JAX says so of its loop in its own words, where it is transposed; here it is refused by a
typed error that says what to write instead, before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad  # noqa: TID251 - the public place of the rules of primitives

from combinators.errors import GraphError, message
from combinators.kernels.jaxprs import primitive_of


def run_until(
    turn: Callable[[list[Any]], list[Any]], carries: Sequence[Any], most: int | None, where: str
) -> list[Any]:
    """Take turns as long as carry 0, a bool, does not hold.

    Over a mesh the flag is the same on all devices: it is whole in its layout, and so are the turns.

    Args:
      turn: the carries to the next carries.
      carries: before the first turn.
      most: of how many turns at most; None for as many as it takes.
      where: the loop, as errors name it.

    Returns:
      The last carries, differentiable forwards.
    """
    if most == 0:
        return list(carries)
    if most is None:
        last = lax.while_loop(lambda carried: ~carried[0], lambda carried: list(turn(carried)), list(carries))
        return _forwards_alone(last, where)

    def goes_on(state: tuple[Any, list[Any]]) -> Any:
        number, carried = state
        return (number < most) & ~carried[0]

    def once(state: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        number, carried = state
        return number + 1, list(turn(carried))

    _, last = lax.while_loop(goes_on, once, (jnp.int32(0), list(carries)))
    return _forwards_alone(last, where)


def no_gradient(where: str) -> str:
    """What is said of a gradient through such a loop."""
    return message(
        f"`{where}` has no gradient: how many turns it takes depends on data",
        "derivatives forwards (jax.jvp) are those of the turns that it takes",
        remedy='Write tp.iterate with derivative="unrolled" (all turns, masked), derivative="implicit" with terms= '
        "(a fixed point), or put jax.lax.stop_gradient behind it.",
    )


def _forwards_alone(values: Sequence[Any], where: str) -> list[Any]:
    return [_forwards(where)(value) if jnp.issubdtype(value.dtype, jnp.inexact) else value for value in values]


@cache
def _forwards(where: str) -> Callable[[Any], Any]:
    """The identity, whose derivative cannot be transposed."""

    @jax.custom_jvp
    def forwards(value: Any) -> Any:
        return value

    @forwards.defjvp
    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:  # pyright: ignore[reportUnusedFunction]
        return primals[0], _forwards_only().bind(tangents[0], where=where)

    return forwards


def _same(value: Any, *, where: str) -> Any:
    del where
    return value


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, where: str) -> tuple[Any, Any]:
    primitive = _forwards_only()
    return primitive.bind(*primals, where=where), primitive.bind(ad.instantiate_zeros(tangents[0]), where=where)


def _transposed(cotangent: Any, value: Any, *, where: str) -> list[Any]:
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(value.aval)]
    raise GraphError(no_gradient(where))


def _batched(arguments: Sequence[Any], places: Sequence[Any], *, where: str) -> tuple[Any, Any]:
    return _forwards_only().bind(*arguments, where=where), places[0]


@cache
def _forwards_only() -> Any:
    """The primitive with its rules, made when it is first needed."""
    return primitive_of("forwards_only", _same, types=_same, moved=_jvp, batched=_batched, back=_transposed)
