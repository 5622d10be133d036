"""Where the arrays of a training run lie: parameters as the plan stores them, and what follows them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from combinators.index_space.tensor_type import is_key

Path = tuple[str, ...]


def everywhere(mesh: Any) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def places_of(state: Any, shardings: Any, mesh: Any) -> Any:
    """The shardings of arrays in their true shapes: those of a plan, but for two kinds of them.

    Of typed random keys a plan knows the words. What it stores in padded pieces lies cut over as many of its mesh axes
    as divide it, and is padded inside of the program.
    """
    return jax.tree.map(
        lambda leaf, at: everywhere(mesh) if is_key(leaf.dtype) else _dividing(leaf, at), state, shardings
    )


def _dividing(leaf: Any, at: NamedSharding) -> NamedSharding:
    cuts = [(cut,) if isinstance(cut, str) else tuple(cut or ()) for cut in at.spec]
    kept: list[tuple[str, ...]] = []
    for size, axes in zip(leaf.shape, cuts, strict=False):
        while axes and size % math.prod(at.mesh.shape[axis] for axis in axes):
            axes = axes[:-1]
        kept.append(axes)
    return at if kept == cuts else NamedSharding(at.mesh, PartitionSpec(*(axes or None for axes in kept)))


def following(tree: Any, params: Any, places: Any, mesh: Any) -> Any:
    """Where the state of an optimizer lies: what belongs to a parameter, and has its shape, lies as the parameter does.

    What belongs to one is told by its path, which ends in that of the parameter, as in all states of optax, those that
    others wrap too. All else, such as counts and factored moments, is on every device.

    Args:
      tree: types of the state.
      params: parameters, or their types.
      places: the shardings of `params`.
      mesh: with devices.
    """
    found = zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(places), strict=True)
    known = {_names(path): (leaf.shape, at) for (path, leaf), at in found}
    longest = max(map(len, known), default=0)

    def place(path: Any, leaf: Any) -> NamedSharding:
        names = _names(path)
        # The longest end that is a parameter: `layer.kernel` is none of `kernel`.
        for length in range(min(longest, len(names)), 0, -1):
            shape, at = known.get(names[-length:], (None, None))
            if at is not None:
                return at if shape == leaf.shape else everywhere(mesh)
        return everywhere(mesh)

    return jax.tree_util.tree_map_with_path(place, tree)


def placed(tree: Any, places: Any) -> Any:
    """New arrays where they are wanted; they share no memory with the old, since a step takes that of its state."""
    return jax.tree.map(_placed, tree, places)


def _placed(leaf: Any, at: NamedSharding) -> Any:
    if is_key(getattr(leaf, "dtype", None)):
        words = _placed(jax.random.key_data(leaf), at)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    return sent(jnp.array(leaf), at)


def sent(array: Any, at: NamedSharding) -> Any:
    """An array that every process has, where it is wanted; one that lies on the devices of several is there already."""
    if at.is_fully_addressable or (isinstance(array, jax.Array) and not array.is_fully_addressable):
        return jax.device_put(array, at)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, at, lambda index: host[index])


def _names(path: Any) -> Path:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
