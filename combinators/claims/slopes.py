"""The slopes of a program, as a program: to compare what two kernels pull back."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import as_function

# Cotangents of two results are not the same numbers.
_APART = 0.618


def pullback(program: Any, scale: int = 1, *, turned: bool = False) -> Any:
    """The closed jaxpr from the operands to slopes of those that have one, of a cotangent of both signs.

    Args:
      program: a closed jaxpr.
      scale: of the cotangent; of 0 what a derivative makes of nothing.
      turned: whether it takes one number more, behind the operands: of each the cotangent is another one.

    Returns:
      None where it has no derivative.
    """
    floats = sloped(program)
    if not floats or not any(is_inexact(aval.dtype) for aval in program.out_avals):
        return None
    run = as_function(program)

    def slopes(*operands: Any) -> list[Any]:
        arrays, turn = (operands[:-1], operands[-1]) if turned else (operands, 0.0)

        def total(*chosen: Any) -> list[Any]:
            given = list(arrays)
            for number, array in zip(floats, chosen, strict=True):
                given[number] = array
            # A program that gives plain numbers gives them as they are.
            return [leaf for leaf in map(jnp.asarray, run(*given)) if is_inexact(leaf.dtype)]

        leaves, pull = jax.vjp(total, *(arrays[number] for number in floats))
        return list(pull([scale * _cotangent(leaf, turn + _APART * number) for number, leaf in enumerate(leaves)]))

    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]
    try:
        return jax.make_jaxpr(slopes)(*structs, *([jax.ShapeDtypeStruct((), jnp.float32)] * turned))
    except Exception:  # noqa: BLE001 - a kernel need have no derivative, and may say so in any way
        return None


def pulled_by(program: Any) -> Any:
    """The closed jaxpr from the operands, and cotangents of those results that have one, to slopes.

    Returns:
      None where it has no derivative.
    """
    floats, results = sloped(program), cotangents_of(program)
    if not floats or not results:
        return None
    run, count = as_function(program), len(program.in_avals)

    def slopes(*given: Any) -> list[Any]:
        def chosen(*arrays: Any) -> list[Any]:
            replaced = dict(zip(floats, arrays, strict=True))
            leaves = run(*(replaced.get(number, array) for number, array in enumerate(given[:count])))
            return [jnp.asarray(leaves[number]) for number in results]

        _, pull = jax.vjp(chosen, *(given[number] for number in floats))
        return list(pull(list(given[count:])))

    avals = [*program.in_avals, *(program.out_avals[number] for number in results)]
    try:
        return jax.make_jaxpr(slopes)(*(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals))
    except Exception:  # noqa: BLE001 - as above
        return None


def cotangents_of(program: Any) -> list[int]:
    """Which results of a closed jaxpr have cotangents."""
    return [number for number, aval in enumerate(program.out_avals) if is_inexact(aval.dtype)]


def _cotangent(leaf: Any, turn: Any) -> Any:
    """Numbers of both signs that do not add up to nothing; of a cell the same, however many there are behind it."""
    axes = [jnp.cos(1.0 + turn + jnp.arange(size)) for size in leaf.shape]
    outer = reduce(lambda one, other: one[..., None] * other, axes, jnp.cos(jnp.asarray(turn, float)))
    return outer.astype(leaf.dtype)


def sloped(program: Any) -> list[int]:
    """Which operands of a closed jaxpr have slopes."""
    return [number for number, aval in enumerate(program.in_avals) if is_inexact(aval.dtype)]
