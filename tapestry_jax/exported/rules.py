"""Logical axis rules: names of axes, each of which lies over the same mesh axes wherever it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tapestry_jax.exported.specs import Names, Rules

Axes = tuple[str, ...]
Placed = tuple[tuple[str, Axes], ...]
"""For every axis of a tensor its dimension and the mesh axes that cut it."""


def logical(tensors: Sequence[Placed]) -> tuple[list[Names], Rules]:
    """Names and rules that say how tensors lie.

    Flax has one rule for a name; a plan may place a dimension differently in different tensors, such as that of a
    parameter that is stored over the batch axis. So a dimension is called by its name where it lies as it does most
    often, and elsewhere, say, `embed_over_data`; where it is whole, though not most often, it has no name.

    Args:
      tensors: how they lie.

    Returns:
      For every tensor the names of its axes, and the rules, in the order in which names are met.
    """
    told = _commonest(axis for tensor in tensors for axis in tensor)
    names = [tuple(_called(dim, axes, told) for dim, axes in tensor) for tensor in tensors]
    rules: dict[str, Axes] = {}
    for tensor, called in zip(tensors, names, strict=True):
        rules |= {name: axes for (_, axes), name in zip(tensor, called, strict=True) if name is not None}
    return names, tuple((name, _as_flax(axes)) for name, axes in rules.items())


def _commonest(axes: Iterable[tuple[str, Axes]]) -> dict[str, Axes]:
    """For each dimension where it lies most often; of equals where it is whole, as activations are."""
    counted: dict[str, Counter[Axes]] = {}
    for dim, over in axes:
        counted.setdefault(dim, Counter())[over] += 1
    return {dim: max(found, key=lambda over: (found[over], over == ())) for dim, found in counted.items()}


def _called(dim: str, axes: Axes, told: dict[str, Axes]) -> str | None:
    if axes == told[dim]:
        return dim
    return f"{dim}_over_{'_'.join(axes)}" if axes else None


def _as_flax(axes: Axes) -> str | Axes | None:
    return axes[0] if len(axes) == 1 else axes or None
