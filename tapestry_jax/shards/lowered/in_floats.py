"""The same programs in floats, with a tolerance: what tells a fault from a law of real numbers that no field knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.graphs.graph import Graph
from combinators.kernels.jaxprs import programs_inside
from tapestry_jax.shards.lowered.in_fields import OF_REALS, is_float
from tapestry_jax.shards.numeric.simulated import DisagreementError, EndlessError, Numbers, Simulation

_RANGES = (-1.0, 1.0), (0.25, 1.25), (-1.25, -0.25)
"""Numbers of both signs; positive ones, of which roots and logarithms are numbers; and negative ones."""


def has_laws_of_reals(jaxpr: Any, is_asked: Callable[[Any], bool] = is_float) -> bool:
    """Whether a program takes orders of floats, or functions of them of which a field knows nothing.

    Args:
      jaxpr: the program.
      is_asked: of which types; floats.
    """
    for equation in jaxpr.eqns:
        if any(has_laws_of_reals(getattr(inner, "jaxpr", inner), is_asked) for inner in programs_inside(equation)):
            return True
        if equation.primitive.name in OF_REALS and any(is_asked(atom.aval.dtype) for atom in equation.invars):
            return True
    return False


def holds_in_floats(graph: Graph, traced: Any, closed: Any, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether results agree but for rounding, for arguments of both signs, positive and negative ones."""
    rng = np.random.default_rng(0)
    for low, high in _RANGES:
        given = [_drawn(node.results[0], low, high, rng) for node in graph.inputs]
        try:
            wanted = _made(traced, given)
            got = _made(closed, [padded(each, shape) for each, shape in zip(given, shapes, strict=True)])
        except (DisagreementError, EndlessError):
            return False
        for want, have in zip(wanted, got, strict=True):
            if not _is_near(want, have[(*map(slice, want.shape), ...)]):
                return False
    return True


def padded(array: Any, shape: Sequence[int]) -> Any:
    """As it is stored: padding holds copies of the last cells."""
    widths = [(0, size - own) for size, own in zip(shape, array.shape, strict=True)]
    if not any(more for _, more in widths):
        return array  # numbers without axes among them, which `np.pad` does not take
    return np.pad(array, widths, mode="edge") if array.size else np.zeros(shape, array.dtype)


def _drawn(kind: Any, low: float, high: float, rng: np.random.Generator) -> Any:
    if is_float(kind.dtype):
        return rng.uniform(low, high, kind.shape).astype(kind.dtype)
    return rng.integers(0, 2 if kind.dtype == np.bool_ else 4, kind.shape).astype(kind.dtype)


def _made(closed: Any, given: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [np.asarray(lanes[0]) for lanes in Simulation(Numbers()).closed(closed, [[each] for each in given])]


def _is_near(want: Any, have: Any) -> bool:
    if not is_float(want.dtype):
        return np.array_equal(want, have)
    rounding = float(jnp.finfo(want.dtype).eps) ** 0.75
    one, other = (each.astype(np.float64) for each in (want, have))
    largest = np.max(np.abs(one), where=np.isfinite(one), initial=0.0)
    return bool(np.allclose(one, other, rtol=0.0, atol=rounding * largest, equal_nan=True))
