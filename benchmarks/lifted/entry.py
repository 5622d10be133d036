"""One model that somebody else wrote: what `tp.lift` takes, and a plan that a user would write first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Lifted:
    """A model, made.

    Attributes:
      function: what `tp.lift` takes: a function, or a module of nnx, linen or equinox.
      args: its arguments; for linen the variables are the first one.
      names: of axes, as `tp.lift` takes them.
      entries: a plan by hand for a mesh of `data=2, model=4`.
    """

    function: Any
    args: tuple[Any, ...]
    names: Any = None
    entries: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Entry:
    """A row of the page.

    Attributes:
      name: of the model.
      kind: what it is an example of.
      package: that has it, by its name on PyPI.
      make: imports the package and makes the model, small and with random weights.
    """

    name: str
    kind: str
    package: str
    make: Callable[[], Lifted]


def normal(*shape: int, seed: int = 0) -> Any:
    """Numbers of a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tokens(*shape: int, vocab: int, seed: int = 0) -> Any:
    """Numbers below `vocab`."""
    return np.random.default_rng(seed).integers(0, vocab, shape).astype(np.int32)


def plain(lifted: Lifted) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function that JAX would be given, and its arguments.

    What a module holds comes first; what is no array stays in the function, and has None in its place.
    """
    from flax import linen, nnx

    function, args = lifted.function, tuple(lifted.args)
    if isinstance(function, nnx.Module):
        graphdef, state = nnx.split(function)
        return _parted(lambda state, *args: nnx.merge(graphdef, state)(*args), (state, *args))
    if isinstance(function, linen.Module):
        return _parted(function.apply, args)
    leaves = jax.tree.leaves(function)
    if len(leaves) == 1 and leaves[0] is function:
        return _parted(function, args)
    return _parted(lambda module, *args: module(*args), (function, *args))


def _parted(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    leaves, tree = jax.tree.flatten(args)
    moves = [hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves]
    held = jax.tree.unflatten(tree, [leaf if moved else None for leaf, moved in zip(leaves, moves, strict=True)])

    def call(*given: Any) -> Any:
        told = iter(jax.tree.leaves(given))
        full = [next(told) if moved else leaf for leaf, moved in zip(leaves, moves, strict=True)]
        return function(*jax.tree.unflatten(tree, full))

    return call, held
