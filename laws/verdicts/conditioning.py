"""How much rounding a result may carry: the float64 magnitude `|J| |x| + |f(x)|` of single entries.

One unit of relative error in every argument moves the result by at most `|J| |x|`, and the last operation adds
`|f(x)|`. So `u` times their sum is what an algorithm as stable as the problem is conditioned can be off by; a fixed
relative tolerance is too tight where terms cancel, and blind where the result is large and the terms are not.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.effort import EffortError
from combinators.errors import TapestryError
from laws.verdicts.rounded import Value
from laws.verdicts.wide import Wide

PICKS = 16
"""Entries looked at in one call; fixed, so that the function is traced once."""

# What JAX and the code under test raise where float64 or a derivative is not to be had.
FAILURES = (TypeError, ValueError, NotImplementedError, RuntimeError, ArithmeticError, TapestryError, EffortError)


def magnitudes(
    function: Callable[..., tuple[Any, ...]],
    arguments: Any,
    picks: Sequence[int],
    *,
    of: int,
    cache: dict[Any, Any],
    key: str,
) -> np.ndarray[Any, Any] | None:
    """Differentiate one side of a law in float64 at some entries of its result.

    Args:
      function: arguments -> sides.
      arguments: tuple of pytrees of arrays in the working precision.
      picks: positions in the flat vector of the inexact leaves of a side; at most `PICKS`.
      of: the side, or the last one; where the law holds, all sides are one function and have one derivative.
      cache: keeps traced functions.
      key: of this function in the cache.

    Returns:
      `|J| |x| + |f(x)|` of each picked entry; in the working precision where the function cannot run in float64; None
      where it has no derivative at all.
    """
    padded = np.zeros(PICKS, np.int32)
    padded[: len(picks)] = picks
    measured = partial(_measured, function, of)
    try:
        found = of_shapes(measured, (arguments, padded), cache, f"{key} magnitudes")((arguments, padded))[0].array
    except FAILURES:
        try:
            found = jax.device_get(cache.setdefault(f"{key} narrow", jax.jit(measured))(arguments, padded))
        except FAILURES:
            return None
    return np.asarray(found, np.float64)[: len(picks)]


def wide_sides(
    function: Callable[..., tuple[Any, ...]], arguments: Any, *, cache: dict[Any, Any], key: str
) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Run the sides of a law in float64.

    Args:
      function: arguments -> sides.
      arguments: tuple of pytrees of arrays in the working precision.
      cache: keeps traced functions.
      key: of this function in the cache.

    Returns:
      Of each side the inexact leaves as one flat vector; None where it cannot run in float64.
    """
    try:
        program = of_shapes(function, arguments, cache, key)
        sides = jax.tree.unflatten(program.out, program(arguments))
    except FAILURES:
        return None
    return tuple(np.concatenate([*vectors(jax.tree.leaves(side)), np.zeros(0)]) for side in sides)


def coarsest(function: Callable[..., Any], arguments: Any, *, cache: dict[Any, Any], key: str) -> float:
    """The largest unit roundoff among the steps of a program; 0 where it cannot be traced."""
    try:
        return of_shapes(function, arguments, cache, key).unit
    except FAILURES:
        return 0.0


def of_shapes(function: Callable[..., Any], arguments: Any, cache: dict[Any, Any], key: str) -> Wide:
    """A function as it runs in double precision, traced once for the shapes and dtypes of its arguments."""
    leaves, tree = jax.tree.flatten(arguments)
    name = (f"{key} wide", tree, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))
    if name not in cache:
        cache[name] = Wide.of(function, *arguments)
    return cache[name]


def vectors(leaves: Sequence[Value]) -> list[np.ndarray[Any, Any]]:
    """The inexact leaves of a result, each as a vector."""
    return [np.ravel(leaf.array) for leaf in leaves if jnp.issubdtype(leaf.array.dtype, jnp.inexact)]


def _measured(function: Any, of: int, arguments: Any, picks: Any) -> Any:
    leaves, tree = jax.tree.flatten(arguments)
    inexact = [index for index, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    xs = [leaves[index] for index in inexact]

    def flat(xs: list[Any]) -> Any:
        filled = list(leaves)
        for index, x in zip(inexact, xs, strict=True):
            filled[index] = x
        sides = function(*jax.tree.unflatten(tree, filled))
        return flatten(sides[min(of, len(sides) - 1)])

    value, pull = jax.vjp(flat, xs)

    def row(pick: Any) -> Any:
        (slopes,) = pull(jnp.zeros(value.shape, value.dtype).at[pick].set(1))
        return sum((jnp.sum(_moved(slope, x)) for slope, x in zip(slopes, xs, strict=True)), jnp.abs(value[pick]))

    return jax.vmap(row)(picks)


def _moved(slope: Any, x: Any) -> Any:
    """`|J| |x|` entry by entry; an infinite argument does not round, and a slope that is not finite counts as 1."""
    slope = jnp.where(jnp.isfinite(slope), jnp.abs(slope), 1)
    return jnp.where(jnp.isfinite(x), slope * jnp.abs(jnp.where(jnp.isfinite(x), x, 0)), 0)


def flatten(side: Any) -> Any:
    """The inexact leaves of a side as one vector."""
    parts = [jnp.ravel(leaf) for leaf in jax.tree.leaves(side) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    return jnp.concatenate(parts) if parts else jnp.zeros((0,))
