"""Numbers to run an unknown kernel on, and changes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]
_SHARES = (0.5, 0.5, 0.0, 1.0)  # of truth among booleans: some kernels answer only where all are alike


def operands_of(specs: Sequence[Any]) -> list[list[Array]]:
    """Draw operands: floats from a normal distribution, integers small enough to be indices.

    Args:
      specs: types of the operands.

    Returns:
      Two draws; four where an operand is boolean.
    """
    seeds = range(len(_SHARES)) if any(_kind(spec) == "b" for spec in specs) else range(2)
    return [_drawn(specs, seed) for seed in seeds]


def exact_operands(specs: Sequence[Any]) -> list[list[Array]]:
    """Draw operands whose sums are exact in short floats too, and whose products round little.

    Some are positive, since a logarithm of others tells nothing; some have no zeros, since a product with one tells
    little; some are fractions, since what rounds takes whole numbers for what it rounds.

    Args:
      specs: types of the operands.

    Returns:
      Nine draws.
    """
    wholes = ((1, 2, 3), (-3, -2, -1, 0, 1, 2, 3), (-3, -2, -1), (0, 1), (1, 2, 3))
    fractions = ((-2, -1, 1, 2), (2, 3, 4), (1, 2, 3), (-1, 0, 1, 2))
    shares = (0.5, 0.8, 0.2, 1.0, 0.0, 0.8, 0.2, 0.5, 0.8)
    draws = [(palette, False) for palette in wholes] + [(palette, True) for palette in fractions]
    return [
        [
            _exact(spec, np.random.default_rng((seed, number)), palette, share, is_fraction)
            for number, spec in enumerate(specs)
        ]
        for seed, ((palette, is_fraction), share) in enumerate(zip(draws, shares, strict=True))
    ]


def changes(array: Array, place: tuple[Any, ...]) -> list[Array]:
    """The array with one slab changed: to NaN, and to larger and smaller numbers; to its opposite where it is boolean.

    NaN alone is not enough, since a maximum or a comparison may drop it; nor is one number, since it may not win.
    """
    if array.dtype == bool:
        slabs: list[Any] = [~array[place]]
    elif jnp.issubdtype(array.dtype, jnp.integer):
        slabs = [(array[place] + 1) % 4, (array[place] + 2) % 4, array.max(initial=0) + 2, 0]
    else:
        slabs = [np.nan, array[place] + 11, array[place] * 2 - 13]
    changed: list[Array] = []
    for slab in slabs:
        copy = array.copy()
        copy[place] = slab
        changed.append(copy)
    return changed


def _drawn(specs: Sequence[Any], seed: int) -> list[Array]:
    source = np.random.default_rng(seed)
    return [_numbers(spec, source, seed) for spec in specs]


def _numbers(spec: Any, source: np.random.Generator, seed: int) -> Array:
    match _kind(spec):
        case "b":
            return np.asarray(source.random(spec.shape) < _SHARES[seed])
        case "i":
            # Above zero in every second draw, so that a smallest number can be made of any of them.
            return np.asarray(source.integers(seed % 2, 4 + seed % 2, spec.shape)).astype(spec.dtype)
        case "c":
            real, imaginary = source.standard_normal(spec.shape), source.standard_normal(spec.shape)
            return np.asarray(real + 1j * imaginary).astype(spec.dtype)
        case _:
            return np.asarray(source.standard_normal(spec.shape)).astype(spec.dtype)


def _exact(spec: Any, source: np.random.Generator, palette: Sequence[int], share: float, is_fraction: bool) -> Array:
    match _kind(spec):
        case "b":
            return np.asarray(source.random(spec.shape) < share)
        case "i":
            # Negative indices would be read from the end, which is a kernel's knowledge of its size.
            return np.asarray(np.abs(source.choice(palette, spec.shape))).astype(spec.dtype)
        case "c":
            real, imaginary = source.choice(palette, spec.shape), source.choice(palette, spec.shape)
            return np.asarray(real + 1j * imaginary).astype(spec.dtype)
        case _:
            fraction = source.choice((0.25, 0.5, 0.75), spec.shape) if is_fraction else 0.0
            return np.asarray(source.choice(palette, spec.shape) - fraction).astype(spec.dtype)


def _kind(spec: Any) -> str:
    if spec.dtype == np.bool_:
        return "b"
    if jnp.issubdtype(spec.dtype, jnp.complexfloating):
        return "c"
    return "f" if jnp.issubdtype(spec.dtype, jnp.floating) else "i"
