"""Scans block by block: each block goes on from the total of those before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from combinators.operations.execute import present, scan_states
from combinators.operations.shaped import Shaped
from tapestry_jax.shards.numeric.kernels import Kernels


def scanned(kernels: Kernels, steps: list[Any], before: list[Any] | None) -> tuple[list[Any], list[Any] | None]:
    """The prefixes of a block behind what comes before it, presented; and the total behind it."""
    shaped = kernels.shaped
    if steps[0].shape[shaped.carrier[0].index(shaped.operation.over or "")] == 0:
        return kernels.run(present, steps), before
    made = kernels.run(_first, steps) if before is None else kernels.run(_further, before, steps)
    count = len(made) - len(steps)
    return made[:count], made[count:]


def _first(shaped: Shaped, steps: list[Any]) -> list[Any]:
    return [*present(shaped, scan_states(shaped, steps)), *_ends(shaped, steps)]


def _further(shaped: Shaped, before: list[Any], steps: list[Any]) -> list[Any]:
    reverse = shaped.operation.reverse
    axes = _scanned_axes(shaped)
    pairs = [[other, one] if reverse else [one, other] for one, other in zip(before, steps, strict=True)]
    whole = [jnp.concatenate(pair, axis) for pair, axis in zip(pairs, axes, strict=True)]
    low = 0 if reverse else 1
    wanted = [
        jax.lax.slice_in_dim(p, low, low + p.shape[a] - 1, axis=a)
        for p, a in zip(scan_states(shaped, whole), axes, strict=True)
    ]
    return [*present(shaped, wanted), *_ends(shaped, whole)]


def _ends(shaped: Shaped, steps: list[Any]) -> list[Any]:
    """The total of some steps: their last prefix."""
    inclusive = replace(shaped, operation=replace(shaped.operation, exclusive=False))
    return [
        jax.lax.slice_in_dim(p, *((0, 1) if shaped.operation.reverse else (p.shape[a] - 1, p.shape[a])), axis=a)
        for p, a in zip(scan_states(inclusive, steps), _scanned_axes(shaped), strict=True)
    ]


def _scanned_axes(shaped: Shaped) -> list[int]:
    return [names.index(shaped.operation.over or "") for names in shaped.carrier]
