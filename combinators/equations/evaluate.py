"""A jaxpr as a function of NumPy arrays: its equations one by one, without a compiler.

The equations are looked at once: every variable has a place, every equation a function. Running them is a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.callbacks import PURE, SILENT, call_back
from combinators.equations.deciding import chosen_by, decides
from combinators.equations.effort import Effort, cost
from combinators.equations.primitives import run_primitive
from combinators.kernels.jaxprs import is_literal, scan_parts

Run = Callable[[Sequence[Any]], list[Any]]
"""From arrays to arrays."""

Watch = Callable[[Any, Any, Callable[[], float] | None], None]
"""Told of each `cond`, `while` and what else decides that is run: the equation, which branch it took, how often it
turned, or what it chose; and of a loop what gives by how much of themselves one turn more changes its floats, zero
where it changes nothing at all."""

_LITTLE = 1e-30


def evaluator(closed: Any, effort: Effort | None = None, watch: Watch | None = None) -> Run:
    """The function that a closed jaxpr is, in NumPy.

    Args:
      closed: of one device; without collectives.
      effort: what may be run, of which each run takes its part; anything where it is None.
      watch: is told what data choose.

    The function raises `EffortError` when there is not so much left.
    """
    return _program(closed.jaxpr, [constant(each) for each in closed.consts], effort, watch)


def constant(value: Any) -> Any:
    """A constant of a jaxpr in NumPy; what has no such form, as a typed random key, as it is."""
    return np.asarray(value) if isinstance(value, jax.Array | np.generic | int | float | bool) else value


def _program(jaxpr: Any, constants: Sequence[Any], effort: Effort | None, watch: Watch | None) -> Run:
    places: dict[Any, int] = {}
    start: list[Any] = []

    def put(variable: Any, value: Any = None) -> int:
        places[variable] = len(start)
        start.append(value)
        return places[variable]

    def place(atom: Any) -> int:
        if is_literal(atom):
            start.append(np.asarray(atom.val, atom.aval.dtype))
            return len(start) - 1
        return places[atom]

    for variable, value in zip(jaxpr.constvars, constants, strict=True):
        put(variable, value)
    inputs = [put(variable) for variable in jaxpr.invars]
    steps = [
        (_equation(each, effort, watch), list(map(place, each.invars)), list(map(put, each.outvars)))
        for each in jaxpr.eqns
    ]
    outputs = [place(atom) for atom in jaxpr.outvars]
    costs = 0 if effort is None else sum(map(cost, jaxpr.eqns)) or 1

    def run(operands: Sequence[Any]) -> list[Any]:
        if effort is not None:
            effort.spend(costs)
        values = list(start)
        for at, operand in zip(inputs, operands, strict=True):
            values[at] = operand
        for function, read, written in steps:
            for at, result in zip(written, function([values[each] for each in read]), strict=True):
                values[at] = result
        return [values[each] for each in outputs]

    return run


def _equation(equation: Any, effort: Effort | None, watch: Watch | None) -> Run:
    name = equation.primitive.name
    if name in SILENT:
        return lambda operands: []
    if name == PURE:
        return partial(call_back, equation)
    if watch is not None and decides(equation):
        return partial(_decide, equation, watch)
    control = CONTROL.get(name)
    return partial(run_primitive, equation) if control is None else control(equation, effort, watch)


def _decide(equation: Any, watch: Watch, operands: Sequence[Any]) -> list[Any]:
    found = run_primitive(equation, operands)
    watch(equation, chosen_by(equation, operands, found), None)
    return found


def _call(equation: Any, effort: Effort | None, watch: Watch | None) -> Run:
    params = equation.params
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    return evaluator(inner, effort, watch) if hasattr(inner, "consts") else _program(inner, [], effort, watch)


def _scan(equation: Any, effort: Effort | None, watch: Watch | None) -> Run:
    params = equation.params
    fixed, carries = scan_parts(equation)
    body, kinds = evaluator(params["jaxpr"], effort, watch), params["jaxpr"].out_avals[carries:]
    turns = range(params["length"])
    ordered = turns[::-1] if params["reverse"] else turns

    def run(operands: Sequence[Any]) -> list[Any]:
        constants, carry = operands[:fixed], list(operands[fixed : fixed + carries])
        made: dict[int, list[Any]] = {}
        for turn in ordered:
            results = body([*constants, *carry, *(_slice(each, turn) for each in operands[fixed + carries :])])
            carry, made[turn] = results[:carries], results[carries:]
        stacked = [
            _stacked([made[turn][at] for turn in turns]) if turns else np.zeros((0, *kind.shape), kind.dtype)
            for at, kind in enumerate(kinds)
        ]
        return [*carry, *stacked]

    return run


def _slice(array: Any, turn: int) -> Any:
    # Typed random keys are arrays of JAX alone.
    return array[turn] if isinstance(array, jax.Array) else np.asarray(array[turn])


def _stacked(made: list[Any]) -> Any:
    return jnp.stack(made) if isinstance(made[0], jax.Array) else np.stack(made)


def _while(equation: Any, effort: Effort | None, watch: Watch | None) -> Run:
    params = equation.params
    asked = params["cond_nconsts"]
    fixed = asked + params["body_nconsts"]
    condition, body = (evaluator(params[name], effort, watch) for name in ("cond_jaxpr", "body_jaxpr"))

    def run(operands: Sequence[Any]) -> list[Any]:
        carry, turns = list(operands[fixed:]), 0
        while np.any(going := condition([*operands[:asked], *carry])[0]):
            after = body([*operands[asked:fixed], *carry])
            carry = [going_on(going, *each) for each in zip(after, carry, strict=True)]
            turns += 1
        if watch is not None:
            watch(equation, turns, lambda: _change_of(carry, body([*operands[asked:fixed], *carry])))
        return carry

    return run


def _change_of(carry: list[Any], more: list[Any]) -> float:
    return 0.0 if all(map(_is_same, carry, more)) else max(map(_change, carry, more))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, jax.Array):  # typed random keys are arrays of JAX alone
        one, other = map(jax.random.key_data, (one, other))
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


def _change(one: Any, other: Any) -> float:
    """By how much of itself an array of floats is another one, and at least by a little."""
    if isinstance(one, jax.Array) or not jnp.issubdtype(np.asarray(one).dtype, jnp.inexact):
        return _LITTLE
    one, other = (np.nan_to_num(np.asarray(each, np.complex128)) for each in (one, other))
    return max(_LITTLE, float(np.max(abs(other - one), initial=0) / max(np.max(abs(one), initial=0), _LITTLE)))


def going_on(going: Any, after: Any, before: Any) -> Any:
    """What a loop carries: of many at once, as `jax.vmap` makes them, those that have ended keep what they have."""
    if np.ndim(going) == 0:
        return after
    going = np.reshape(going, (*np.shape(going), *(1,) * (np.ndim(before) - np.ndim(going))))
    # Typed random keys are arrays of JAX alone.
    return jnp.where(going, after, before) if isinstance(before, jax.Array) else np.where(going, after, before)


def _cond(equation: Any, effort: Effort | None, watch: Watch | None) -> Run:
    branches = [evaluator(branch, effort, watch) for branch in equation.params["branches"]]

    def run(operands: Sequence[Any]) -> list[Any]:
        chosen = min(max(int(operands[0]), 0), len(branches) - 1)
        if watch is not None:
            watch(equation, chosen, None)
        return branches[chosen](operands[1:])

    return run


_CALLS = ("jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "remat", "remat2", "checkpoint", "custom_jvp_call")
CONTROL: dict[str, Callable[[Any, Effort | None, Watch | None], Run]] = {
    **dict.fromkeys((*_CALLS, "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin"), _call),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
"""What runs programs inside of an equation."""
