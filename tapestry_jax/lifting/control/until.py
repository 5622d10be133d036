"""Loops until a condition holds whose parts are folded: a loop of the graph, as `tp.iterate(until=)` writes it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from combinators.kernels.jaxprs import as_function
from tapestry_jax.lifting.rules.unknown import check
from tapestry_jax.lifting.values import Atom, LoopStep
from tapestry_jax.lifting.walk import Walk, types_of, words

MOST_TURNS = 2**31 - 1
"""Of a loop that does not say how many turns it takes at most."""


def looped(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """The loop, its body and condition lifted; None where it has no tensors, or each cell of a batch ends by itself."""
    params, kinds = equation.params, types_of(equation)
    if equation.effects:
        check(equation, walk.place)
    if params["cond_jaxpr"].out_avals[0].shape or not any(kind.size > 1 for kind in kinds):
        return None
    asked, fixed, body = int(params["cond_nconsts"]), int(params["body_nconsts"]), params["body_jaxpr"]
    ends = _ends(params["cond_jaxpr"])
    starts = walk.run(ends.jaxpr, ends.consts, [*atoms[:asked], *atoms[asked + fixed :]])
    inner, new = walk.inner(), walk.values.new
    flag = new((), jnp.dtype(jnp.bool_))
    # What both read is one input: two would be brought where they are wanted one by one, and sent twice.
    held: dict[int, int] = {}
    captured = [walk.value(atom) for atom in atoms[: asked + fixed]]
    vars_captured = [*ends.jaxpr.invars[:asked], *body.jaxpr.invars[:fixed]]
    inputs = [held.setdefault(value, _input(walk, var)) for value, var in zip(captured, vars_captured, strict=True)]
    of_condition, of_body = inputs[:asked], [*inputs[asked:], *(_input(walk, var) for var in body.jaxpr.invars[fixed:])]
    after = inner.run(body.jaxpr, body.consts, of_body)
    (over,) = inner.run(ends.jaxpr, ends.consts, [*of_condition, *after])
    steps = inner.finish([flag, *of_body[fixed:], *held.values()], [over, *after])
    results = [new((), jnp.dtype(jnp.bool_)), *(new(kind.shape, kind.dtype) for kind in kinds)]
    operands = [*(walk.value(atom) for atom in (*starts, *atoms[asked + fixed :])), *held]
    carries = len(results)
    walk.loop(LoopStep(steps, operands, carries, 0, MOST_TURNS, results, "while", walk.place, until=True))
    return list(results[1:])


def _input(walk: Walk, var: Any) -> int:
    kind = words(var.aval)
    return walk.values.new(kind.shape, kind.dtype)


def _ends(condition: Any) -> Any:
    """The condition turned round: whether the loop is over."""
    goes_on = as_function(condition)
    return jax.make_jaxpr(lambda *values: ~goes_on(*values)[0])(*condition.in_avals)
