"""How much rounding a program's own steps make: the same steps in float64, each result disturbed by one rounding.

The conditioned bound knows the arguments and the result. A program of many steps, and above all a gradient, can lose
digits in between that no disturbance of its arguments explains: `1 - tanh(x)**2` where `tanh(x)` is nearly 1, or the
differences of a softmax. Monte Carlo arithmetic finds these, step by step, for every entry of the result.

Source: Parker 1997, Monte Carlo Arithmetic; Vignes 1993, the CESTAC method.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from laws.conditioning import FAILURES, flatten, widened

SAMPLES = 8

_MOVING = """
    abs argmax argmin bitcast_convert_type broadcast_in_dim ceil clamp concatenate convert_element_type copy copy_p
    cummax cummin dynamic_slice dynamic_update_slice expand_dims floor gather imag iota max min neg optimization_barrier
    pad real reduce_max reduce_min reshape rev round select_n sign slice sort split squeeze stop_gradient transpose
"""
_CALL_NAMES = "jit pjit closed_call core_call remat checkpoint custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr"
# Primitives that move or choose numbers and round none, and those that run an inner jaxpr.
_EXACT, _CALLS = frozenset(_MOVING.split()), frozenset(_CALL_NAMES.split())
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def spread(
    function: Callable[..., Any], arguments: Any, unit: float, cache: dict[str, Any], key: str
) -> np.ndarray[Any, Any] | None:
    """Find how far one rounding at every step moves each entry of a result.

    Args:
      function: arguments -> pytree of arrays; runs in float64.
      arguments: pytree of arrays.
      unit: the unit roundoff of the working precision.
      cache: keeps compiled functions.
      key: of this function in the cache.

    Returns:
      For each entry of the flat inexact result the largest of eight deviations; None where the function cannot be run
      in float64.
    """
    name = f"{key} spread"
    if name not in cache:
        cache[name] = jax.jit(partial(_deviations, function))
    with jax.enable_x64(True):
        try:
            found = cache[name](jax.tree.map(widened, arguments), np.float64(unit))
        except FAILURES:
            return None
        return np.asarray(jnp.max(found, axis=0))


def _deviations(function: Callable[..., Any], arguments: Any, unit: Any) -> Any:
    leaves, tree = jax.tree.flatten(arguments)
    traced = jax.make_jaxpr(lambda *xs: flatten(function(*jax.tree.unflatten(tree, xs))))(*leaves)

    def disturbed(seed: Any, size: Any) -> Any:
        # Of all generators the one that compiles to least; nothing here asks for good numbers.
        noise = _Noise(jax.random.key(seed, impl="unsafe_rbg"), size)
        return noise.run(traced.jaxpr, traced.consts, [noise.disturb(leaf) for leaf in leaves])[0]

    # One sample after the other, the first without noise: the program is compiled once.
    seeds, sizes = jnp.arange(SAMPLES + 1), jnp.full(SAMPLES + 1, unit).at[0].set(0)
    runs = jax.lax.map(lambda sample: disturbed(*sample), (seeds, sizes))
    return jnp.abs(runs[1:] - runs[0])


class _Noise:
    """An interpreter of jaxprs that rounds at random; a loop counts as one step."""

    def __init__(self, key: Any, size: Any) -> None:
        self._key, self._size, self._count = key, size, 0

    def disturb(self, value: Any) -> Any:
        """Multiply every entry by `1 + u`, `u` uniform between minus and plus the unit roundoff."""
        if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
            return value
        self._count += 1
        key = jax.random.fold_in(self._key, self._count)
        noise = jax.random.uniform(key, jnp.shape(value), jnp.float64, -1, 1) * self._size
        return value * (1 + noise).astype(value.dtype)

    def run(self, jaxpr: Any, consts: Any, arguments: Any) -> list[Any]:
        """Evaluate a jaxpr."""
        known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))
        for step in jaxpr.eqns:
            values = [v.val if isinstance(v, core.Literal) else known[v] for v in step.invars]
            known.update(zip(step.outvars, self._step(step, values), strict=True))
        return [v.val if isinstance(v, core.Literal) else known[v] for v in jaxpr.outvars]

    def _step(self, step: Any, values: list[Any]) -> list[Any]:
        name = step.primitive.name
        inner = next((step.params[key] for key in _INNER if key in step.params), None)
        if name in _CALLS and inner is not None:
            # Remat holds its jaxpr without constants, the others close over them.
            return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)
        results = step.primitive.bind(*values, **step.params)
        listed = list(results) if step.primitive.multiple_results else [results]
        return listed if name in _EXACT else [self.disturb(result) for result in listed]
