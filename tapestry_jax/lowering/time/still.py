"""What is the same in every turn of a loop is computed once, before the loop.

A kernel scales its queries, say, which stand still while keys go round: as an operation of the turn the scaling was run
again in each of them, inside of the product that it goes into. XLA does not move it out of a turn that is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.kernels.jaxprs import as_function, is_literal, part_of
from tapestry_jax.planning.geometry.layout import dense_bytes

Turn = Callable[..., Any]
# Arithmetic alone, cell by cell: nothing that sends, and nothing that makes more of less.
_ARITHMETIC = frozenset(
    ("mul", "div", "add", "sub", "neg", "abs", "convert_element_type", "integer_pow", "exp", "sqrt")
)
_MARKS = frozenset(("pvary", "pcast"))
"""What says of a number that it varies; of a value it would be a sum over devices in the gradient, and stays."""


def before_loop(turn: Turn, fixed: Any, *turning: Any) -> tuple[Any, Turn]:
    """Move what depends on `fixed` alone out of a turn.

    Args:
      turn: `turn(fixed, *turning)`.
      fixed: the same in every turn.
      turning: what the first turn is given; its types count.

    Returns:
      What stands still, values of arithmetic on `fixed` among it, and the turn as a function of it.
    """
    closed, made = jax.make_jaxpr(turn, return_shape=True)(fixed, *turning)
    jaxpr, constants = closed.jaxpr, closed.consts
    given = jax.tree.leaves(fixed)
    still = dict(zip(jaxpr.invars[: len(given)], given, strict=True))
    moved = _moved(jaxpr, set(still))
    used = _used(jaxpr, moved)
    if not used:
        return fixed, turn
    read = set[Any]().union(*map(_variables, moved))
    sources = [atom for atom in still if atom in read]
    early = as_function(part_of(jaxpr, moved, sources, used))(*(still[atom] for atom in sources))
    rest = _others(jaxpr, moved)
    late = as_function(part_of(jaxpr, rest, [*jaxpr.constvars, *jaxpr.invars, *used], jaxpr.outvars))

    def after(prepared: tuple[Any, list[Any]], *turning: Any) -> Any:
        fixed, values = prepared
        results = late(*constants, *jax.tree.leaves((fixed, *turning)), *values)
        return jax.tree.unflatten(jax.tree.structure(made), results)

    return (fixed, early), after


def _moved(jaxpr: Any, still: set[Any]) -> list[Any]:
    """The equations whose operands stand still, and whose results are no larger than these."""
    known, found, numbers = set(still), dict[int, Any](), dict[Any, dict[int, Any]]()
    for equation in jaxpr.eqns:
        operands, name = _variables(equation), equation.primitive.name
        if name in _MARKS | _ARITHMETIC and operands <= numbers.keys():
            numbers[equation.outvars[0]] = _behind(operands, numbers) | {id(equation): equation}
        elif name in _ARITHMETIC and operands & known and operands <= known | numbers.keys():
            if max(map(_size, equation.outvars)) <= max(map(_size, operands)):
                found |= _behind(operands, numbers) | {id(equation): equation}
                known |= {*equation.outvars}
    return [*found.values()]


def _behind(atoms: set[Any], numbers: dict[Any, dict[int, Any]]) -> dict[int, Any]:
    """The equations that make these of numbers in the program: JAX 0.12 converts one that was said to vary."""
    return {key: made for atom in atoms & numbers.keys() for key, made in numbers[atom].items()}


def _used(jaxpr: Any, moved: Sequence[Any]) -> list[Any]:
    """The results of equations that were moved, as far as others read them."""
    ends = {atom for atom in jaxpr.outvars if not is_literal(atom)}
    read = ends.union(*map(_variables, _others(jaxpr, moved)))
    return [atom for equation in moved for atom in equation.outvars if atom in read]


def _others(jaxpr: Any, moved: Sequence[Any]) -> list[Any]:
    known = set(map(id, moved))
    return [equation for equation in jaxpr.eqns if id(equation) not in known]


def _variables(equation: Any) -> set[Any]:
    return {atom for atom in equation.invars if not is_literal(atom)}


def _size(atom: Any) -> int:
    return dense_bytes(atom.aval.size, atom.aval.dtype)
