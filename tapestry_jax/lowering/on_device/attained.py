"""How many elements of a device's box attain an extremum, so that all of them have equal shares of its gradient.

A partial maximum does not tell how many elements attain it. Folds of the library's own count them by what they lift; of
any other kernel the program is read (`ties.py`). Of a kernel that finds its extremum in another way (by sorting, say) a
box counts as one: the gradient is then shared by boxes, which leaves a subgradient, whose shares add up to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.extrema import Attained, Extremum, is_identity, is_smooth
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.loops import with_varying_loops
from tapestry_jax.lowering.on_device.ties import attaining
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.planning.folding.merges import merges


def extrema_of(shaped: Shaped, leaves: Sequence[Any]) -> dict[int, Extremum]:
    """Which leaves of a state are extrema that have a derivative."""
    assert shaped.operation.monoid is not None
    found = [(leaf, merge.kind) for merge in merges(shaped) for leaf in merge.leaves]
    return {leaf: kind for leaf, kind in found if kind in ("max", "min") and is_smooth(leaves[leaf])}


def with_counts(shaped: Shaped, blocks: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """The state of a box, each extremum together with how many elements attain it."""
    kinds = extrema_of(shaped, leaves)
    if not kinds:
        return list(leaves)
    counts = _counts(shaped, blocks, [lax.stop_gradient(leaf) for leaf in leaves], kinds)
    wrapped = list(leaves)
    for place, count in counts.items():
        wrapped[place] = Attained(leaves[place], vary(count.astype(jnp.int32), sorted(varying_axes(leaves[place]))))
    return wrapped


def without_elements(shaped: Shaped, leaves: Sequence[Any]) -> list[Any]:
    """The state of no element, likewise."""
    kinds = extrema_of(shaped, leaves)
    return [
        Attained(leaf, jnp.zeros_like(leaf, jnp.int32)) if place in kinds else leaf for place, leaf in enumerate(leaves)
    ]


def value_of(leaf: Any) -> Any:
    """A leaf of a state without its count."""
    return leaf.value if isinstance(leaf, Attained) else leaf


def _at_least_one(kind: Extremum, extremum: Any, count: Any) -> Any:
    # What no element seems to attain, since it was rounded differently here and there, counts as one. An identity that
    # none attains is of nothing: of a segment that has no element in this box.
    return jnp.where(is_identity(kind, extremum), count, jnp.maximum(count, 1))


def _counts(shaped: Shaped, blocks: Sequence[Any], leaves: Sequence[Any], kinds: dict[int, Extremum]) -> dict[int, Any]:
    kernel: Any = shaped.operation.kernel
    own = getattr(getattr(kernel, "__wrapped__", kernel), "attained", None)
    axes = frozenset[str]().union(*(varying_axes(array) for array in (*blocks, *leaves)))
    blocks = [lax.stop_gradient(block) for block in blocks]
    places = sorted(kinds)
    if own is not None:

        def count(*arrays: Any) -> Any:
            state = arrays[: len(leaves)]
            counts = own(places, state, arrays[len(leaves) :])
            return [_at_least_one(kinds[at], state[at], each) for at, each in zip(places, counts, strict=True)]

        return dict(zip(places, with_varying_loops(count, axes)(*leaves, *blocks), strict=True))
    structs = [jax.ShapeDtypeStruct(block.shape, block.dtype) for block in blocks]
    closed = jax.make_jaxpr(lambda *blocks: jax.tree.leaves(kernel(*blocks)))(*structs)
    found = {
        place: attaining(closed.jaxpr, closed.consts, blocks, place, kinds[place], sorted(axes)) for place in places
    }
    return {
        place: jnp.int32(1) + jnp.zeros_like(leaves[place], jnp.int32) if c is None else c for place, c in found.items()
    }
