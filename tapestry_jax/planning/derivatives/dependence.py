"""Which outputs of a function depend on which inputs: read off its jaxpr, nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.kernels.jaxprs import WRAPPERS, is_literal

# Calls whose inner program can be followed; loops are taken as touching everything they return.
_CALLS = frozenset((*WRAPPERS, "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"))

Matrix = tuple[tuple[bool, ...], ...]


def dependence(
    function: Callable[..., Sequence[Any]],
    *arguments: Sequence[Any],
    known: Callable[[Any], bool] | None = None,
    alone: bool = False,
) -> Matrix:
    """For every output of `function(*arguments)` whether it depends on each input.

    Args:
      function: takes flat lists, returns a flat list.
      arguments: types of the leaves of each argument.
      known: of an equation, whether its results are known without its operands; none are by default.
      alone: whether the place of something found along an axis of one cell counts as known: compilers may see it.

    Returns:
      One row for each output; columns in the order of the flattened arguments.
    """
    return dependence_in(traced(function, *arguments).jaxpr, known=known, alone=alone)


def traced(function: Callable[..., Sequence[Any]], *arguments: Sequence[Any]) -> Any:
    """The closed jaxpr that `dependence` reads."""
    return jax.make_jaxpr(function)(*(list(argument) for argument in arguments))


def dependence_in(jaxpr: Any, *, known: Callable[[Any], bool] | None = None, alone: bool = False) -> Matrix:
    """As `dependence`, of what was traced already."""
    columns: list[list[bool]] = []
    for variable in jaxpr.invars:
        reached = reachable(jaxpr, {variable}, known, alone=alone)
        columns.append([is_variable(out) and out in reached for out in jaxpr.outvars])
    return tuple(zip(*columns, strict=True)) if columns else tuple(() for _ in jaxpr.outvars)


def passed_through(function: Callable[..., Sequence[Any]], *arguments: Sequence[Any]) -> tuple[int | None, ...]:
    """For every output the input that it is, unchanged; None where it is computed."""
    jaxpr = traced(function, *arguments).jaxpr
    positions = {variable: position for position, variable in enumerate(jaxpr.invars)}
    return tuple(positions.get(out) if is_variable(out) else None for out in jaxpr.outvars)


def is_variable(atom: Any) -> bool:
    """Whether an atom of a jaxpr is a variable and no literal."""
    return not is_literal(atom)


def reachable(
    jaxpr: Any, sources: set[Any], known: Callable[[Any], bool] | None = None, *, alone: bool = False
) -> set[Any]:
    """The variables of a jaxpr that depend on `sources`, other than through equations whose results are `known`."""
    reached = set(sources)
    for equation in jaxpr.eqns:
        touched = [is_variable(v) and v in reached for v in equation.invars]
        if not any(touched) or (known is not None and known(equation)):
            continue
        if equation.primitive.name == "cond" and not touched[0]:
            reached.update(_through_branches(equation, touched[1:], known, alone))
            continue
        if alone and _finds_among_one(equation):
            # What is found is the cell itself, and its place the only one.
            found = zip(equation.outvars, touched, strict=False)
            reached.update(out for out, hit in found if hit and equation.primitive.name in ("sort", "top_k"))
            continue
        inner = _inner(equation)
        if inner is None or len(inner.invars) != len(equation.invars):
            reached.update(equation.outvars)
            continue
        reached.update(_through(equation, inner, touched, known, alone))
    return reached


def _finds_among_one(equation: Any) -> bool:
    """Whether an equation finds a place along axes of one cell."""
    match equation.primitive.name:
        case "top_k":
            axes: Sequence[int] = (equation.params.get("axis", -1),)
        case "sort":
            axes = (equation.params["dimension"],)
        case "argmax" | "argmin":
            axes = equation.params["axes"]
        case _:
            return False
    return all(equation.invars[0].aval.shape[axis] == 1 for axis in axes)


def _through(
    equation: Any, inner: Any, touched: Sequence[bool], known: Callable[[Any], bool] | None, alone: bool
) -> set[Any]:
    """The results of an equation that its inner program makes of `touched` operands."""
    inside = reachable(inner, {v for v, hit in zip(inner.invars, touched, strict=True) if hit}, known, alone=alone)
    made = zip(equation.outvars, inner.outvars, strict=True)
    return {out for out, source in made if is_variable(source) and source in inside}


def _through_branches(
    equation: Any, touched: Sequence[bool], known: Callable[[Any], bool] | None, alone: bool
) -> set[Any]:
    """The same of a condition: what any of its branches makes of them."""
    branches = equation.params["branches"]
    return set().union(*(_through(equation, branch.jaxpr, touched, known, alone) for branch in branches))


def _inner(equation: Any) -> Any:
    if equation.primitive.name not in _CALLS:
        return None
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner)
