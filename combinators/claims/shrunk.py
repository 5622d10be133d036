"""The code that a kernel has for many cells, run on few: a program with every size made less as those of its operands.

A kernel whose code chooses by a size is another program of few cells, which tells nothing of what it does with many.
Only programs are made less whose primitives take any number of cells and have no number of them but in a shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.declared.rules import CUMULATIVE, REDUCTIONS
from combinators.kernels.elementwise import CELLWISE
from combinators.kernels.jaxprs import WRAPPERS, is_literal

_TAKE_ANY = CELLWISE | CUMULATIVE | REDUCTIONS | {"dot_general", "expand_dims", "sort", "squeeze", "transpose"}
# By which parameter each says a shape.
_SHAPED = {"broadcast_in_dim": "shape", "reshape": "new_sizes"}
_CALLED = {**dict.fromkeys(WRAPPERS, "jaxpr"), "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


class _OtherError(Exception):
    """A program with primitives of which nothing is known where there are fewer cells."""


def shrunk(program: Any, types: Sequence[Any]) -> Any:
    """A program on operands of less cells; None where that is not known to be the same code.

    Args:
      program: a closed jaxpr.
      types: of the operands, each with as many axes as there.
    """
    pairs = {
        pair
        for own, less in zip(program.in_avals, types, strict=True)
        for pair in zip(own.shape, less.shape, strict=True)
    }
    sizes = dict(pairs)
    if len(sizes) < len(pairs):
        return None  # two dimensions of one size, of which one is made less

    def run(*arrays: Any) -> list[Any]:
        return _run(program.jaxpr, program.consts, arrays, sizes)

    try:
        return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in types))
    except Exception:  # noqa: BLE001 - JAX refuses sizes that do not go together in many ways
        return None


def _run(jaxpr: Any, consts: Sequence[Any], arrays: Sequence[Any], sizes: Mapping[int, int]) -> list[Any]:
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arrays), strict=True))

    def value(atom: Any) -> Any:
        return atom.val if is_literal(atom) else known[atom]

    for equation in jaxpr.eqns:
        found = _found(equation, list(map(value, equation.invars)), sizes)
        known.update(zip(equation.outvars, found, strict=True))
    return list(map(value, jaxpr.outvars))


def _found(equation: Any, values: list[Any], sizes: Mapping[int, int]) -> list[Any]:
    name, params = equation.primitive.name, dict(equation.params)
    if name in _CALLED:
        inner = params[_CALLED[name]]
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values, sizes)
    if name in _SHAPED:
        params[_SHAPED[name]] = tuple(sizes.get(size, size) for size in params[_SHAPED[name]])
    elif name not in _TAKE_ANY:
        raise _OtherError
    bound = equation.primitive.bind(*values, **params)
    found = list(bound) if equation.primitive.multiple_results else [bound]
    # Which looks at nothing that it is told.
    if name == "reshape" and jnp.size(found[0]) != jnp.size(values[0]):
        raise _OtherError
    return found
