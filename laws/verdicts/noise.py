"""How much rounding a program's own steps make: the same steps in float64, each result disturbed by one rounding.

The conditioned bound knows the arguments and the result. A program of many steps, and above all a gradient, can lose
digits in between that no disturbance of its arguments explains: `1 - tanh(x)**2` where `tanh(x)` is nearly 1, or the
differences of a softmax. Monte Carlo arithmetic finds these, step by step, for every entry of the result.

A compiler computes what is used twice as often as it likes, fused with what uses it, and rounds differently each time:
`x` minus its mean, and the sum of these, may know two means. So every other use of a value sees another run of the
steps that it comes from.

Source: Parker 1997, Monte Carlo Arithmetic; Vignes 1993, the CESTAC method.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.kernels.jaxprs import is_literal
from laws.verdicts.conditioning import FAILURES, flatten, widened

SAMPLES = 8

_MOVING = """
    abs argmax argmin bitcast_convert_type broadcast_in_dim ceil clamp concatenate convert_element_type copy copy_p
    cummax cummin dynamic_slice dynamic_update_slice expand_dims floor gather imag iota max min neg optimization_barrier
    pad real reduce_max reduce_min reshape rev round select_n sign slice sort split squeeze stop_gradient transpose
"""
_CALL_NAMES = """
    jit pjit closed_call core_call eval_jaxpr remat remat2 checkpoint custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr
"""
# Primitives that move or choose numbers and round none, and those that run an inner jaxpr.
_EXACT, _CALLS = frozenset(_MOVING.split()), frozenset(_CALL_NAMES.split())
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def spread(
    function: Callable[..., Any],
    arguments: Any,
    unit: float,
    cache: dict[str, Any],
    key: str,
    *,
    steps: bool = True,
    given: bool = False,
) -> np.ndarray[Any, Any] | None:
    """Find how far one rounding of every argument, and at every step, moves each entry of a result.

    Args:
      function: arguments -> pytree of arrays; runs in float64.
      arguments: pytree of arrays.
      unit: the unit roundoff of the working precision.
      cache: keeps compiled functions.
      key: of this function in the cache.
      steps: whether steps round; else the arguments alone do, and the result may be what other arguments would give
        exactly. Where the first derivative is 0, as that of a variance of equal numbers, this finds the second.
      given: whether both sides have these very arguments. Then no rounding moved them, nor any number on the way that
        the working precision holds, and ties and other kinks that lie there are none of rounding's making: a gradient
        that is wrong at a kink would otherwise be excused by what it is beside it.

    Returns:
      For each entry of the flat inexact result the largest of sixteen deviations; None where the function cannot be run
      in float64.
    """
    name = f"{key} spread"
    if name not in cache:
        # Float64 itself holds all that it computes, so that nothing would seem to be rounded.
        digits = round(-math.log2(unit)) if given and unit > 2.0**-50 else None
        cache[name] = jax.jit(partial(_deviations, function, steps, digits))
    with jax.enable_x64(True):
        try:
            found = cache[name](jax.tree.map(widened, arguments), np.float64(unit))
        except FAILURES:
            return None
        return np.asarray(found).max(axis=0)


def _deviations(function: Callable[..., Any], steps: bool, digits: int | None, arguments: Any, unit: Any) -> Any:
    leaves, tree = jax.tree.flatten(arguments)
    traced = jax.make_jaxpr(lambda *xs: flatten(function(*jax.tree.unflatten(tree, xs))))(*leaves)

    def disturbed(seed: Any, size: Any) -> Any:
        known = leaves
        if digits is None:
            known = [_disturb(leaf, _phase(seed, -1 - i), size) for i, leaf in enumerate(leaves)]

        def run() -> Any:
            return _Noise(seed, size if steps else None, digits).run(
                traced.jaxpr, traced.consts, [(leaf, False) for leaf in known]
            )[0][0]

        return jax.vmap(run, axis_name=_RUNS, axis_size=2)()

    # One sample after the other, the first without noise: the program is compiled once.
    seeds, sizes = jnp.arange(SAMPLES + 1), jnp.full(SAMPLES + 1, unit).at[0].set(0)
    runs = jax.lax.map(lambda sample: disturbed(*sample), (seeds, sizes))
    return jnp.max(jnp.abs(runs[1:] - runs[0]), axis=1)


_RUNS = "runs of the same steps"
Known = tuple[Any, bool]
"""A value, and whether any step rounded on the way to it."""


# Far from multiples of a turn, and of each other: steps that follow each other must not round alike, or what they share
# would cancel in a difference.
_TURNS = {"seed": 2.834736, "step": 3.883222, "run": 1.353091, "entry": 2.399963}


def _phase(seed: Any, step: int, run: Any = 0) -> Any:
    return seed * _TURNS["seed"] + step * _TURNS["step"] + run * _TURNS["run"]


def _disturb(value: Any, phase: Any, size: Any) -> Any:
    """Multiply every entry by `1 + u`, `u` between minus and plus the unit roundoff.

    The sine of a phase is no good generator, but the whole compiles in half the time that one takes.
    """
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        return value
    shape = jnp.shape(value)
    entries = jnp.arange(math.prod(shape), dtype=jnp.float64).reshape(shape)
    return value * (1 + jnp.sin(phase + _TURNS["entry"] * entries) * size).astype(value.dtype)


class _Noise:
    """An interpreter of jaxprs that rounds at random, in two runs side by side; a loop counts as one step."""

    def __init__(self, seed: Any, size: Any | None, digits: int | None) -> None:
        self._seed, self._size, self._digits, self._count = seed, size, digits, 0

    def run(self, jaxpr: Any, consts: Any, arguments: Sequence[Known]) -> list[Known]:
        """Evaluate a jaxpr."""
        given = [*((const, False) for const in consts), *arguments]
        known: dict[Any, Known] = dict(zip((*jaxpr.constvars, *jaxpr.invars), given, strict=True))
        uses: collections.Counter[Any] = collections.Counter()

        def read(variable: Any) -> Known:
            if is_literal(variable):
                return variable.val, False
            value, is_rounded = known[variable]
            uses[variable] += 1
            return (_of_other_run(value) if is_rounded and uses[variable] % 2 == 0 else value), is_rounded

        for step in jaxpr.eqns:
            results = self._step(step, [read(variable) for variable in step.invars])
            known.update(zip(step.outvars, results, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def _step(self, step: Any, values: list[Known]) -> list[Known]:
        name = step.primitive.name
        inner = next((step.params[key] for key in _INNER if key in step.params), None)
        if name in _CALLS and inner is not None:
            # Remat holds its jaxpr without constants, the others close over them.
            return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)
        results = step.primitive.bind(*(value for value, _ in values), **step.params)
        listed = list(results) if step.primitive.multiple_results else [results]
        if name in _EXACT or self._size is None:
            return [(result, any(flag for _, flag in values)) for result in listed]
        floats = [jnp.issubdtype(jnp.result_type(result), jnp.floating) for result in listed]
        moved = any(flag for _, flag in values)
        return [(self._rounded(r) if f else r, f or moved) for r, f in zip(listed, floats, strict=True)]

    def _rounded(self, value: Any) -> Any:
        self._count += 1
        moved = _disturb(value, _phase(self._seed, self._count, jax.lax.axis_index(_RUNS)), self._size)
        return moved if self._digits is None else jnp.where(_is_held(value, self._digits), value, moved)


def _is_held(value: Any, digits: int) -> Any:
    """Where a number has no more binary digits than a precision holds."""
    mantissa, _ = jnp.frexp(value)
    scaled = mantissa * 2.0**digits
    return (scaled == jnp.floor(scaled)) | ~jnp.isfinite(value)


def _of_other_run(value: Any) -> Any:
    return jax.lax.ppermute(value, _RUNS, ((0, 1), (1, 0)))
