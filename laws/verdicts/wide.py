"""A program in double precision: whatever precision its steps ask for, they run in float64, one by one, in NumPy.

A program that casts to bfloat16 inside would go on doing so on arguments in float64. So it is traced in the precision
that it works in, and each equation of the trace is widened: the dtypes that it names, and those of its results.
Compiling the derivative of a model in float64 takes a hundred times as long as running it so.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.effort import Effort, cost
from combinators.equations.evaluate import going_on
from combinators.equations.primitives import run_primitive
from combinators.kernels.jaxprs import is_literal, programs_inside, scan_parts
from laws.verdicts.contracted import Flow, Flows, Known, alone, unknown
from laws.verdicts.rounded import Rounding, Value, is_float, is_fold, keeps_terms, roundings, unit_of

MOST = 2**20
"""Small equations of one run, as `combinators.equations.effort` counts them: some ten seconds."""

_CALL_NAMES = """
    jit pjit closed_call core_call eval_jaxpr remat remat2 checkpoint custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr custom_lin
"""
_CALLS = frozenset(_CALL_NAMES.split())
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")

# What reads bits runs in the precision that it was traced in, and so does what holds a program of its own.
_OF_BITS = ("bitcast_convert_type", "nextafter", "custom_call", "ffi_call", "random_", "threefry", "rng_")
_IN_NUMPY = frozenset(("scatter-add", "scatter-mul", "scatter-min", "scatter-max"))
_DTYPES = frozenset(("dtype", "new_dtype", "input_dtype", "out_dtype", "preferred_element_type"))

Run = Callable[[list[Value], "Rounding | None", Effort], list[Value]]


@final
class Wide:
    """A closed jaxpr, as a function of arrays in double precision.

    Args:
      closed: traced in the working precision.
      out: the structure of the result, of whose leaves the list is.
    """

    def __init__(self, closed: Any, out: Any = None) -> None:
        self._closed, self.out = closed, out
        inner = closed.jaxpr
        self._run = _program(inner, closed.consts, [False] * len(inner.outvars), Flows(_called), alone(inner))

    @classmethod
    def of(cls, function: Callable[..., Any], *arguments: Any) -> Wide:
        """Trace a function of pytrees, to the list of the leaves of its result."""
        leaves, tree = jax.tree.flatten(arguments)
        closed, out = jax.make_jaxpr(lambda *xs: function(*jax.tree.unflatten(tree, xs)), return_shape=True)(*leaves)
        return cls(closed, jax.tree.structure(out))

    def __call__(self, arguments: Any, rounding: Rounding | None = None) -> list[Value]:
        """Run it on the leaves of `arguments`, with roundings or without.

        Raises:
          EffortError: for what takes more equations than somebody would wait for.
        """
        leaves = [Value(widened(leaf)) for leaf in jax.tree.leaves(arguments)]
        with jax.enable_x64(True), np.errstate(all="ignore"):
            if rounding is not None:
                leaves = rounding.arguments(leaves)
            return self._run(leaves, rounding, Effort(MOST))

    @cached_property
    def unit(self) -> float:
        """The unit roundoff of its coarsest step; 0 where it computes no floats."""
        return max(_units(self._closed.jaxpr), default=0.0)


def widened(leaf: Any) -> Any:
    """An array in double precision; integers, booleans and random keys as they are."""
    if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.extended):
        return leaf
    array = np.asarray(leaf)
    return array.astype(_wide(array.dtype)) if jnp.issubdtype(array.dtype, jnp.inexact) else array


def _wide(dtype: Any) -> Any:
    if not jnp.issubdtype(dtype, jnp.inexact):
        return dtype
    return np.dtype(np.complex128 if jnp.issubdtype(dtype, jnp.complexfloating) else np.float64)


def _units(jaxpr: Any) -> set[float]:
    found = {unit_of(atom.aval.dtype) for equation in jaxpr.eqns for atom in equation.outvars if _has_dtype(atom)}
    return found.union(
        *(_units(getattr(inner, "jaxpr", inner)) for each in jaxpr.eqns for inner in programs_inside(each))
    )


def _has_dtype(atom: Any) -> bool:
    return hasattr(atom.aval, "dtype")


@dataclass(frozen=True)
class _Kind:
    aval: Any


@dataclass(frozen=True)
class _Widened:
    """An equation as `run_primitive` reads it."""

    primitive: Any
    params: dict[str, Any]
    outvars: tuple[_Kind, ...]


def _widen(equation: Any) -> _Widened:
    params = {name: _wide_parameter(name, value) for name, value in equation.params.items()}
    kinds = (jax.ShapeDtypeStruct(out.aval.shape, _wide(out.aval.dtype)) for out in equation.outvars)
    return _Widened(equation.primitive, params, tuple(map(_Kind, kinds)))


def _wide_parameter(name: str, value: Any) -> Any:
    if name == "precision":
        return None
    return _wide(value) if name in _DTYPES and value is not None else value


def _program(jaxpr: Any, consts: Sequence[Any], used: Sequence[bool], flows: Flows, known: Known) -> Run:
    """The equations of a jaxpr, looked at once; `used` says which results are wanted rounded otherwise, too.

    A compiler computes what is used twice as often as it likes: every other use of a value sees it rounded otherwise,
    and so does what is made of it cell by cell. A fold is made once, and a step that is one number gives no other.
    """
    flow = flows.of(jaxpr, known)
    places: dict[Any, int] = {}
    start: list[Any] = []
    uses: collections.Counter[Any] = collections.Counter()
    twice = _wanted_twice(jaxpr, used)

    def put(variable: Any, value: Any = None) -> int:
        places[variable] = len(start)
        start.append(value)
        return places[variable]

    def read(atom: Any) -> tuple[int, bool]:
        if is_literal(atom):
            start.append(Value(widened(np.asarray(atom.val, atom.aval.dtype))))
            return len(start) - 1, False
        uses[atom] += 1
        return places[atom], uses[atom] % 2 == 0

    for variable, value in zip(jaxpr.constvars, consts, strict=True):
        put(variable, Value(widened(value)))
    inputs = [put(variable) for variable in jaxpr.invars]
    steps = [
        (
            _step(each, [variable in twice for variable in each.outvars], flows, flow),
            [read(atom) for atom in each.invars],
            [put(variable) for variable in each.outvars],
        )
        for each in jaxpr.eqns
    ]
    outputs = [read(atom) for atom in jaxpr.outvars]
    costs = sum(map(cost, jaxpr.eqns)) or 1

    def run(operands: list[Value], rounding: Rounding | None, effort: Effort) -> list[Value]:
        effort.spend(costs)
        values = list(start)
        for at, operand in zip(inputs, operands, strict=True):
            values[at] = operand
        for function, of, to in steps:
            found = function([_seen(values[at], other) for at, other in of], rounding, effort)
            for at, result in zip(to, found, strict=True):
                values[at] = result
        return [_seen(values[at], other) for at, other in outputs]

    return run


def _wanted_twice(jaxpr: Any, used: Sequence[bool]) -> set[Any]:
    atoms = [atom for each in jaxpr.eqns for atom in each.invars] + list(jaxpr.outvars)
    often = collections.Counter(atom for atom in atoms if not is_literal(atom))
    found = {variable for variable, count in often.items() if count > 1}
    found |= {atom for atom, each in zip(jaxpr.outvars, used, strict=True) if each and not is_literal(atom)}
    for equation in reversed(jaxpr.eqns):
        if equation.primitive.name in _CALLS or (not _is_made_once(equation) and found & {*equation.outvars}):
            found |= {atom for atom in equation.invars if not is_literal(atom)}
    return found


def _is_made_once(equation: Any) -> bool:
    name = equation.primitive.name
    return is_fold(name) or name in _CONTROL


def _seen(value: Value, by_other: bool) -> Value:
    return Value(value.other, value.array, value.terms) if by_other and value.other is not None else value


def _inner(equation: Any) -> Any:
    """The program that an equation calls, with its constants or without; None where it does something else."""
    if equation.primitive.name not in _CALLS:
        return None
    return next((equation.params[key] for key in _INNER if key in equation.params), None)


def _called(equation: Any) -> Any:
    # Remat holds its jaxpr without constants, the others close over them.
    inner = _inner(equation)
    return getattr(inner, "jaxpr", inner)


def _step(equation: Any, twice: list[bool], flows: Flows, flow: Flow) -> Run:
    name, inner = equation.primitive.name, _inner(equation)
    if inner is not None:
        return _program(_called(equation), getattr(inner, "consts", ()), twice, flows, flow.into(equation))
    if name in _CONTROL:
        return _CONTROL[name](equation)
    return _primitive(equation, twice, flow.is_one_number(equation))


def _primitive(equation: Any, twice: list[bool], once: bool) -> Run:
    name, rounds, one = equation.primitive.name, roundings(equation), _one_way(equation)
    otherwise = any(twice) and not _is_made_once(equation)

    def run(operands: list[Value], rounding: Rounding | None, effort: Effort) -> list[Value]:
        results = [Value(each) for each in one([operand.array for operand in operands])]
        if rounding is None:
            return results
        if otherwise and any(operand.other is not None for operand in operands):
            others = one([operand.array if operand.other is None else operand.other for operand in operands])
            results = [replace(result, other=other) for result, other in zip(results, others, strict=True)]
        if rounding.pieces > 1:
            results = _with_terms(results, operands)
        return [
            result if step is None else rounding.of(result, step, wanted, once)
            for result, step, wanted in zip(results, rounds, twice, strict=True)
        ]

    def _with_terms(results: list[Value], operands: list[Value]) -> list[Value]:
        before = operands[0].terms if operands else None
        if is_fold(name):
            return [replace(results[0], terms=cache(lambda: one([_squared(each.array) for each in operands])[0]))]
        if keeps_terms(name) and before is not None:
            return [replace(results[0], terms=cache(lambda: one([before()])[0]))]
        return results

    return run


def _squared(array: Any) -> Any:
    return np.square(array) if is_float(array) else array


def _one_way(equation: Any) -> Callable[[list[Any]], list[Any]]:
    """An equation on plain arrays."""
    name = equation.primitive.name
    if name == "reduce_precision":
        return list
    if name.startswith(_OF_BITS) or (name not in _IN_NUMPY and any(programs_inside(equation))):
        kinds = [atom.aval.dtype for atom in equation.invars]

        def narrow(row: list[Any]) -> list[Any]:
            given = [
                np.asarray(each).astype(kind) if is_float(each) or np.iscomplexobj(each) else each
                for each, kind in zip(row, kinds, strict=True)
            ]
            return [widened(result) for result in run_primitive(equation, given)]

        return narrow
    return partial(run_primitive, _widen(equation))


def _alone(closed: Any) -> Run:
    inner = closed.jaxpr
    return _program(inner, closed.consts, [False] * len(inner.outvars), Flows(_called), unknown(inner))


def _scan(equation: Any) -> Run:
    params = equation.params
    fixed, carries = scan_parts(equation)
    closed = params["jaxpr"]
    body, kinds = _alone(closed), closed.out_avals[carries:]
    turns = range(params["length"])
    ordered = turns[::-1] if params["reverse"] else turns

    def run(operands: list[Value], rounding: Rounding | None, effort: Effort) -> list[Value]:
        constants, carry = operands[:fixed], list(operands[fixed : fixed + carries])
        made: dict[int, list[Value]] = {}
        for turn in ordered:
            slices = [_slice(each, turn) for each in operands[fixed + carries :]]
            results = body([*constants, *carry, *slices], rounding, effort)
            carry, made[turn] = results[:carries], results[carries:]
        stacked = [
            _stacked([made[turn][at].array for turn in turns])
            if turns
            else np.zeros((0, *kind.shape), _wide(kind.dtype))
            for at, kind in enumerate(kinds)
        ]
        return [*carry, *map(Value, stacked)]

    return run


def _slice(value: Value, turn: int) -> Value:
    # Typed random keys are arrays of JAX alone.
    return Value(value.array[turn] if isinstance(value.array, jax.Array) else np.asarray(value.array[turn]))


def _stacked(made: list[Any]) -> Any:
    return jnp.stack(made) if isinstance(made[0], jax.Array) else np.stack(made)


def _while(equation: Any) -> Run:
    params = equation.params
    asked = params["cond_nconsts"]
    fixed = asked + params["body_nconsts"]
    condition, body = map(_alone, (params["cond_jaxpr"], params["body_jaxpr"]))

    def run(operands: list[Value], rounding: Rounding | None, effort: Effort) -> list[Value]:
        carry = list(operands[fixed:])
        while np.any(going := condition([*operands[:asked], *carry], rounding, effort)[0].array):
            after = body([*operands[asked:fixed], *carry], rounding, effort)
            carry = [_going_on(going, *each) for each in zip(after, carry, strict=True)]
        return carry

    return run


def _going_on(going: Any, after: Value, before: Value) -> Value:
    if np.ndim(going) == 0:
        return after
    arrays = after.array, before.array
    others = [each.array if each.other is None else each.other for each in (after, before)]
    rounded = after.other is not None or before.other is not None
    return Value(going_on(going, *arrays), going_on(going, *others) if rounded else None)


def _cond(equation: Any) -> Run:
    branches = [_alone(each) for each in equation.params["branches"]]

    def run(operands: list[Value], rounding: Rounding | None, effort: Effort) -> list[Value]:
        taken = min(max(int(operands[0].array), 0), len(branches) - 1)
        return branches[taken](operands[1:], rounding, effort)

    return run


_CONTROL: dict[str, Callable[[Any], Run]] = {"scan": _scan, "while": _while, "cond": _cond}
