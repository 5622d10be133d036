"""Functions from which nothing comes back where nothing comes to them.

A cotangent of zero is no promise in JAX: 0 times an infinity is NaN. What is merged and dropped afterwards, such as the
run that another one follows, has a cotangent of exact zeros, and elements beside an infinity in it had a slope of NaN,
or had none, by where a plan cuts. Here what comes back of exact zeros is exact zeros.

A condition on a cotangent has no right derivative: where it is zero, its own tangent need not be. So this is no `where`
in a rule, but two primitives: a derivative that is linear in its tangents, and what hides the NaN behind its transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad  # noqa: TID251 - the public place of the rules of primitives

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import as_function, calling, of_some, pulled_back

_NAME = "closed_call"  # a program that is called, for whoever reads programs


def silent(function: Callable[..., Any], outer: int = 0) -> Callable[..., Any]:
    """The same function of states, from whose cells nothing comes back where nothing comes to them.

    Args:
      function: from states to a state, all trees of one structure and of the same dtypes; a cell of what it gives is a
        function of the same cell of its arguments.
      outer: how many leading axes all leaves have in common; each place of these is a cell.

    Returns:
      A function of the same values and derivatives of any order. In its transpose an array of results whose cotangents
      are all zeros in a cell sends zeros back to it.
    """

    def run(*args: Any) -> Any:
        tree = jax.tree.structure(args)

        def leaves(*some: Any) -> list[Any]:
            return jax.tree.leaves(function(*jax.tree.unflatten(tree, some)))

        found = quiet(leaves, outer, args[0])(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(args[0]), found)

    return run


def quiet(function: Callable[..., list[Any]], outer: int = 0, like: Any = None) -> Callable[..., list[Any]]:
    """The same of a function from arrays to a list of arrays, of any types.

    Args:
      function: a cell of what it gives is a function of the same cell of its arguments that have a derivative.
      outer: how many leading axes these and all results have in common.
      like: a tree of the types of its results; it is asked where none is given.
    """

    def run(*args: Any) -> list[Any]:
        kinds = jax.tree.leaves(jax.eval_shape(function, *args) if like is None else like)
        smooth = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in kinds]

        def results(*some: Any) -> list[Any]:
            return [leaf for leaf, each in zip(function(*some), smooth, strict=True) if each]

        # Integers have no derivative, and in `shard_map` JAX has no type for the one that a rule would give them.
        made = [None] * len(kinds) if all(smooth) else function(*args)
        found = iter(_ruled(results, outer)(*args) if any(smooth) else ())
        return [next(found) if each else leaf for leaf, each in zip(made, smooth, strict=True)]

    return run


def is_silent(equation: Any) -> bool:
    """Whether an equation is one of the primitives here, which are not to be inlined."""
    return equation.primitive is _moves() or equation.primitive is _hides()


def _ruled(function: Callable[..., list[Any]], outer: int) -> Callable[..., list[Any]]:
    run = jax.custom_jvp(function)

    @partial(run.defjvp, symbolic_zeros=True)
    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:  # pyright: ignore[reportUnusedFunction]
        made = function(*primals)
        moving = [at for at, tangent in enumerate(tangents) if not _is_still(tangent)]
        moved = _pushed(function, primals, moving, [tangents[at] for at in moving], outer)
        return made, list(map(_as_varying, moved, made))

    return run


def _is_still(tangent: Any) -> bool:
    return isinstance(tangent, (jax.custom_derivatives.SymbolicZero, ad.Zero)) or tangent.dtype == jax.dtypes.float0


def _as_varying(tangent: Any, result: Any) -> Any:
    """A tangent that varies over all devices over which the result does: in `shard_map` JAX wants it to."""
    mine, wanted = (getattr(jax.typeof(x), "manual_axis_type", None) for x in (tangent, result))
    missing = tuple(sorted(wanted.varying - mine.varying)) if wanted is not None and mine is not None else ()
    return lax.pcast(tangent, missing, to="varying") if missing else tangent


def _pushed(
    function: Callable[..., Any], primals: Sequence[Any], moving: Sequence[int], tangents: Sequence[Any], outer: int
) -> list[Any]:
    """The tangents of what a function gives, of those of some of its arguments."""

    def of_tangents(*given: Any) -> list[Any]:
        fixed, moved = given[: len(primals)], given[len(primals) :]
        return jax.jvp(of_some(function, fixed, moving), [fixed[at] for at in moving], list(moved))[1]

    program = jax.make_jaxpr(of_tangents)(*primals, *tangents)
    of = _Of(jax.make_jaxpr(function)(*primals), tuple(moving))
    return _moves().bind(*primals, *tangents, call_jaxpr=program, of=of, outer=outer)


@dataclass(frozen=True, eq=False)
class _Of:
    """What tangents are of: a program, which whoever looks for programs does not count twice, and who moves in it."""

    program: Any
    moving: tuple[int, ...]


def _hidden(values: Sequence[Any], arriving: Sequence[Any], outer: int) -> list[Any]:
    """Values, and zeros in the cells in which all of what arrives is zero."""

    def select(*given: Any) -> list[Any]:
        made, came = given[: len(values)], given[len(values) :]
        some = [jnp.any(each != 0, axis=tuple(range(outer, jnp.ndim(each)))) for each in came]
        live = jnp.any(jnp.stack(some), axis=0)
        wide = [jnp.reshape(live, (*live.shape, *(1,) * (jnp.ndim(value) - outer))) for value in made]
        return [jnp.where(flag, value, jnp.zeros_like(value)) for flag, value in zip(wide, made, strict=True)]

    program = jax.make_jaxpr(select)(*values, *arriving)
    return _hides().bind(*values, *arriving, call_jaxpr=program, values=len(values), outer=outer)


def _move_moved(
    primals: Sequence[Any], tangents: Sequence[Any], *, call_jaxpr: Any, of: _Of, outer: int
) -> tuple[list[Any], list[Any]]:
    made = _moves().bind(*primals, call_jaxpr=call_jaxpr, of=of, outer=outer)
    moving = [at for at, tangent in enumerate(tangents) if not _is_still(tangent)]
    return made, _pushed(as_function(call_jaxpr), primals, moving, [tangents[at] for at in moving], outer)


def _move_back(cotangents: Sequence[Any], *operands: Any, call_jaxpr: Any, of: _Of, outer: int) -> list[Any]:
    del of
    # What is no zero by its value but by its kind is left out: with zeros in its place an infinity would make NaN.
    coming = [at for at, cotangent in enumerate(cotangents) if not isinstance(cotangent, ad.Zero)]
    unknown = [at for at, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    found: dict[int, Any] = {at: ad.Zero(call_jaxpr.jaxpr.invars[at].aval) for at in unknown}
    # Each result by itself: what nobody reads may lie in one array beside another that is read.
    for result in coming:
        back = pulled_back(call_jaxpr, operands, [result], [cotangents[result]])
        hidden = _hidden(list(back.values()), [cotangents[result]], outer)
        for at, value in zip(back, hidden, strict=True):
            found[at] = value if isinstance(found[at], ad.Zero) else found[at] + value
    return [found.get(at) for at in range(len(operands))]


def _move_batched(
    operands: Sequence[Any], places: Sequence[Any], *, call_jaxpr: Any, of: _Of, outer: int
) -> tuple[list[Any], list[int]]:
    del call_jaxpr
    # Every operand has all axes of a cell: what comes back to it has them too.
    moved, count = _in_front(operands, places), len(operands) - len(of.moving)
    # Tangents of many, and not many tangents: JAX makes of a condition one that stops what moves, where it is of many.
    found = _pushed(jax.vmap(as_function(of.program)), moved[:count], of.moving, moved[count:], outer + 1)
    return found, [0] * len(found)


def _hide_moved(
    operands: Sequence[Any], tangents: Sequence[Any], *, call_jaxpr: Any, values: int, outer: int
) -> tuple[list[Any], list[Any]]:
    made = _hides().bind(*operands, call_jaxpr=call_jaxpr, values=values, outer=outer)
    moving = [at for at in range(values) if not _is_still(tangents[at])]
    arriving = [*operands[values:], *(each for each in tangents[values:] if not _is_still(each))]
    hidden = _hidden([tangents[at] for at in moving], arriving, outer) if moving else []
    found = dict(zip(moving, hidden, strict=True))
    kinds = [variable.aval for variable in call_jaxpr.jaxpr.outvars]
    return made, [found.get(at, ad.Zero(kind)) for at, kind in enumerate(kinds)]


def _hide_back(cotangents: Sequence[Any], *operands: Any, call_jaxpr: Any, values: int, outer: int) -> list[Any]:
    back = [ad.Zero(variable.aval) for variable in call_jaxpr.jaxpr.invars]
    unknown = [at for at, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    coming = [at for at in unknown if at < values and not isinstance(cotangents[at], ad.Zero)]
    found = [cotangents[at] for at in coming]
    if coming and unknown[-1] < values:
        found = _hidden(found, operands[values:], outer)
    # Where what arrives is itself a tangent, nobody knows yet whether it is zero, and nothing is hidden.
    given = dict(zip(coming, found, strict=True))
    return [given.get(at, back[at] if at in unknown else None) for at in range(len(operands))]


def _hide_batched(
    operands: Sequence[Any], places: Sequence[Any], *, call_jaxpr: Any, values: int, outer: int
) -> tuple[list[Any], list[int]]:
    del call_jaxpr
    moved = _in_front(operands, places)
    return _hidden(moved[:values], moved[values:], outer + 1), [0] * values


def _in_front(operands: Sequence[Any], places: Sequence[Any]) -> list[Any]:
    operands = [jnp.asarray(x) for x in operands]
    size = next(x.shape[at] for x, at in zip(operands, places, strict=True) if at is not None)
    return [
        jnp.broadcast_to(x, (size, *x.shape)) if at is None else jnp.moveaxis(x, at, 0)
        for x, at in zip(operands, places, strict=True)
    ]


@cache
def _moves() -> Any:
    """Tangents of results: linear in its last operands."""
    return calling(_NAME, moved=_move_moved, batched=_move_batched, back=_move_back)


@cache
def _hides() -> Any:
    """Its first operands, and zeros in the cells in which all of the others are zero."""
    return calling(_NAME, moved=_hide_moved, batched=_hide_batched, back=_hide_back)
