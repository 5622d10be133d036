"""Running programs of tests in NumPy, and compiling those that send or differentiate as none before them did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from combinators.equations.primitives import PRIMITIVES
from combinators.kernels.jaxprs import programs_inside
from tapestry_jax.shards.numeric.devices import COLLECTIVES
from tapestry_jax.shards.numeric.simulated import CALLS
from tests.classes import is_new, sending
from tests.simulated.evaluate import run_traced
from tests.thoroughly import thoroughly

Call = Callable[..., Any]

_MOST_TURNS = 300
"""Of loops that are run in NumPy: longer ones take more time than compiling them."""

_ONE_BY_ITSELF = 40
"""JAX compiles an operation that NumPy does not have in the time that so many take in a program of many."""


def held(check: Callable[[Call, Call], None]) -> None:
    """Holds `check(plain, planned)`, which says how programs are run, those without a plan and those with one.

    Without a plan they are run in NumPy. Of those with one the first of each kind is compiled: of a kind are programs
    with the same kinds of loops and conditions, the same collectives in them, and functions that have the same
    derivatives of their own. XLA rounds functions such as tanh in another way: what does not hold for NumPy's results
    is asked for once more of compiled programs. With `make thorough` all are compiled.
    """
    try:
        check(computed, sampled)
    except AssertionError:
        if thoroughly():
            raise
        check(compiled, compiled)


def computed(function: Call, *args: Any) -> Any:
    """What `function(*args)` gives, run in NumPy where that has all its operations."""
    return _run(function, args, lambda jaxpr: False)


def in_numpy(function: Call) -> Call:
    """`function`, in the place of `jax.jit(function)` where nothing depends on how XLA rounds: it is `computed`."""

    def run(*args: Any) -> Any:
        try:
            return computed(function, *args)
        except jax.errors.TracerArrayConversionError:
            return function(*args)  # inside of a program, whose part it is

    return jax.jit(function) if thoroughly() else run


def sampled(function: Call, *args: Any) -> Any:
    """What `function(*args)` gives, compiled if its program is the first of its kind, else `computed`."""
    return _run(function, args, lambda jaxpr: is_new("sampled", (*_controls(jaxpr), *sending(jaxpr))))


def compiled(function: Call, *args: Any) -> Any:
    """What `function(*args)` gives, compiled."""
    return jax.jit(function)(*args)


def _run(function: Call, args: tuple[Any, ...], is_compiled: Callable[[Any], bool]) -> Any:
    traced = jax.jit(function).trace(*args)
    if thoroughly() or is_compiled(traced.jaxpr.jaxpr) or not _is_for_numpy(traced.jaxpr.jaxpr):
        return traced.lower().compile()(*args)
    return run_traced(traced.jaxpr, jax.tree.structure(traced.out_info), args)


def _controls(jaxpr: Any) -> set[str]:
    return {equation.primitive.name for equation in _equations(jaxpr)} & _CONTROL


def _is_for_numpy(jaxpr: Any) -> bool:
    left: set[str] = set()
    equations = list(_equations(jaxpr))
    for equation in equations:
        if not _is_followed(equation):
            return False
        if equation.primitive.name not in _KNOWN:
            left.add(f"{equation.primitive.name} {[each.aval for each in equation.invars]} {equation.params}")
    return len(left) <= 4 + len(equations) // _ONE_BY_ITSELF


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name in _CONTROL:
            for inner in programs_inside(equation):
                yield from _equations(getattr(inner, "jaxpr", inner))


_CONTROL = frozenset((*CALLS, "scan", "while", "cond", "shard_map"))
# The last one is ours, and does in JAX's own small programs, which NumPy runs, what it does.
_KNOWN = frozenset((*PRIMITIVES, *COLLECTIVES, *_CONTROL, "slice_alike"))


def _is_followed(equation: Any) -> bool:
    """Whether NumPy, or JAX for this equation alone, gives what it gives."""
    name, params = equation.primitive.name, equation.params
    if not all(isinstance(each.aval.dtype, np.dtype) for each in equation.outvars):
        return False  # random keys
    if name == "while":
        return not params["cond_jaxpr"].out_avals[0].shape  # not one of many loops
    if name == "scan":
        return params["length"] <= _MOST_TURNS
    return name in _KNOWN or not any(programs_inside(equation))
