"""How much rounding a result may carry: the float64 magnitude `|J| |x| + |f(x)|` of single entries.

One unit of relative error in every argument moves the result by at most `|J| |x|`, and the last operation adds
`|f(x)|`. So `u` times their sum is what an algorithm as stable as the problem is conditioned can be off by; a fixed
relative tolerance is too tight where terms cancel, and blind where the result is large and the terms are not.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import TapestryError

PICKS = 16
"""Entries looked at in one call; fixed, so that the function compiles once."""

# What JAX and the code under test raise where float64 or a derivative is not to be had.
FAILURES = (TypeError, ValueError, NotImplementedError, RuntimeError, ArithmeticError, TapestryError)


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
      arguments: pytree of arrays in the working precision.
      picks: positions in the flat vector of the inexact leaves of a side; at most `PICKS`.
      of: the side, or the last one; where the law holds, all sides are one function and have one derivative.
      cache: keeps compiled functions.
      key: of this function in the cache.

    Returns:
      `|J| |x| + |f(x)|` of each picked entry; in the working precision where the function cannot run in float64; None
      where it has no derivative at all.
    """
    padded = np.zeros(PICKS, np.int32)
    padded[: len(picks)] = picks
    name = f"{key} magnitudes"
    if name not in cache:
        cache[name] = jax.jit(partial(_measured, function, of))
    for wide in (True, False):
        try:
            with jax.enable_x64(True) if wide else nullcontext():
                values = jax.tree.map(widened if wide else np.asarray, arguments)
                return np.asarray(jax.device_get(cache[name](values, padded)))[: len(picks)]
        except FAILURES:
            continue
    return None


def wide_sides(
    function: Callable[..., tuple[Any, ...]], arguments: Any, *, cache: dict[Any, Any], key: str
) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Run the sides of a law in float64: no derivative is asked for, which would be most of what is compiled.

    Args:
      function: arguments -> sides.
      arguments: pytree of arrays in the working precision.
      cache: keeps compiled functions.
      key: of this function in the cache.

    Returns:
      Of each side the inexact leaves as one flat vector; None where it cannot run in float64.
    """
    name = f"{key} sides"
    if name not in cache:
        cache[name] = jax.jit(lambda arguments: [flatten(side) for side in function(*arguments)])
    try:
        with jax.enable_x64(True):
            return tuple(jax.device_get(cache[name](jax.tree.map(widened, arguments))))
    except FAILURES:
        return None


def widened(leaf: Any) -> Any:
    """An array in double precision; integers and booleans as they are."""
    array = np.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    return array.astype(np.complex128 if jnp.issubdtype(array.dtype, jnp.complexfloating) else np.float64)


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
