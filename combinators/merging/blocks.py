"""From one cell to blocks: mapping what a monoid says of a cell over the dimensions that a carrier's leaves share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.extrema import is_smooth, running
from combinators.merging.leafwise import Native
from combinators.merging.monoid import Monoid

Axes = tuple[str, ...]


def shared_axes(carrier: Sequence[Axes]) -> Axes:
    """The dimensions that every leaf carries, in the order of the first leaf; none starts with `~` (a cell's own)."""
    if not carrier:
        return ()
    common = set(carrier[0]).intersection(*carrier[1:])
    return tuple(name for name in carrier[0] if name in common and not name.startswith("~"))


def map_cells(
    cell: Callable[..., Any], inputs: Sequence[Sequence[Axes]], outputs: Sequence[Axes], shared: Axes
) -> Callable[..., Any]:
    """Map a function of cells over `shared` dimensions of its arguments.

    Args:
      cell: takes as many flat leaf lists as `inputs` has entries; returns a flat list of leaves.
      inputs: for each argument, the axes of its leaves.
      outputs: the axes of the leaves of the result.
      shared: the dimensions to map; every leaf carries all of them.

    Returns:
      The same function of blocks.
    """
    mapped = cell
    for position in reversed(range(len(shared))):
        # The inner functions no longer see the dimensions that the outer maps have taken.
        gone, name = shared[:position], shared[position]
        in_axes = tuple([_index(axes, name, gone) for axes in leaves] for leaves in inputs)
        mapped = jax.vmap(mapped, in_axes=in_axes, out_axes=[_index(axes, name, gone) for axes in outputs])
    return mapped


def _index(axes: Axes, name: str, gone: Axes) -> int:
    return [axis for axis in axes if axis not in gone].index(name)


def combine_blocks(monoid: Monoid, tree: Any, carrier: Sequence[Axes], left: list[Any], right: list[Any]) -> list[Any]:
    """Combine two state blocks, given as flat lists of leaves, cell by cell."""
    if monoid.native is not None:
        return jax.tree.leaves(monoid.merge(jax.tree.unflatten(tree, left), jax.tree.unflatten(tree, right)))

    def cell(first: list[Any], second: list[Any]) -> list[Any]:
        return jax.tree.leaves(monoid.merge(jax.tree.unflatten(tree, first), jax.tree.unflatten(tree, second)))

    return map_cells(cell, [carrier, carrier], carrier, shared_axes(carrier))(left, right)


def merge_behind(
    monoid: Monoid,
    tree: Any,
    carrier: Sequence[Axes],
    before: list[Any],
    own: list[Any],
    there: Any,
    reverse: bool = False,
    some: Any = True,
) -> list[Any]:
    """Merge blocks of states behind what comes before them, where both hold something; else what does stays as it is.

    The identity is not merged instead: by the law `e + a ~ a`, but beside an infinity `e + a` may be NaN, as `inf * 0`
    is in a recurrence and in a product of matrices.

    Args:
      monoid: merges two states.
      tree: how leaves make a state.
      carrier: the axes of the leaves.
      before: the leaves of what comes before; the identity where there is nothing.
      own: the leaves of the blocks.
      there: whether something comes before; a boolean scalar.
      reverse: whether what comes before lies on the right.
      some: whether the blocks hold something, and not the identity; a boolean scalar, True where all do.
    """
    if monoid.native is not None:
        return combine_blocks(monoid, tree, carrier, *((own, before) if reverse else (before, own)))
    # A choice sends zeros back to what it drops, and 0 * inf is NaN: where one is nothing, identities are merged.
    unit = identity_block(monoid, tree, carrier, own)
    both = there if some is True else there & some
    safe = [jnp.where(both, leaf, one) for leaf, one in zip(own, unit, strict=True)]
    if some is not True:
        alone = [jnp.where(there, leaf, other) for leaf, other in zip(before, own, strict=True)]
        before = [jnp.where(both, leaf, one) for leaf, one in zip(before, unit, strict=True)]
    else:
        alone = own
    merged = combine_blocks(monoid, tree, carrier, *((safe, before) if reverse else (before, safe)))
    return [jnp.where(both, leaf, other) for leaf, other in zip(merged, alone, strict=True)]


def identity_block(monoid: Monoid, tree: Any, carrier: Sequence[Axes], like: Sequence[Any]) -> list[Any]:
    """The identity, broadcast to blocks of the shapes and dtypes of `like`."""
    shared = shared_axes(carrier)
    cells = [
        jax.ShapeDtypeStruct(tuple(s for s, a in zip(leaf.shape, axes, strict=True) if a not in shared), leaf.dtype)
        for leaf, axes in zip(like, carrier, strict=True)
    ]
    state = jax.tree.leaves(monoid.identity_for(jax.tree.unflatten(tree, cells)))
    return [_broadcast(value, axes, shared, leaf) for value, axes, leaf in zip(state, carrier, like, strict=True)]


def _broadcast(value: Any, axes: Axes, shared: Axes, like: Any) -> Any:
    own = [position for position, axis in enumerate(axes) if axis not in shared]
    return lax.broadcast_in_dim(jnp.asarray(value, like.dtype), like.shape, own)


def present_block(
    present: Callable[..., Any] | None, tree: Any, carrier: Sequence[Axes], results: Sequence[Axes], state: list[Any]
) -> list[Any]:
    """Apply `present` cell by cell; `results` names the axes of the leaves that it returns."""
    if present is None:
        return state

    def cell(leaves: list[Any]) -> list[Any]:
        return jax.tree.leaves(present(jax.tree.unflatten(tree, leaves)))

    return map_cells(cell, [carrier], results, shared_axes(carrier))(state)


def scan_block(
    monoid: Monoid, tree: Any, carrier: Sequence[Axes], over: str, state: list[Any], reverse: bool = False
) -> list[Any]:
    """Inclusive prefixes (suffixes where `reverse`) of a block of states along the dimension `over`."""
    axes = [leaf_axes.index(over) for leaf_axes in carrier]
    if is_native_scan(monoid, state):
        return [_native_scan(monoid.native, leaf, axis, reverse) for leaf, axis in zip(state, axes, strict=True)]
    front = [(over, *(name for name in leaf_axes if name != over)) for leaf_axes in carrier]
    moved = [jnp.moveaxis(leaf, axis, 0) for leaf, axis in zip(state, axes, strict=True)]
    if reverse:
        moved = [jnp.flip(leaf, 0) for leaf in moved]

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        # Flipped steps come last first: the order of the monoid is kept by swapping the arguments back.
        first, second = (right, left) if reverse else (left, right)
        return combine_blocks(monoid, tree, front, first, second)

    scanned = lax.associative_scan(combine, moved, axis=0)
    if reverse:
        scanned = [jnp.flip(leaf, 0) for leaf in scanned]
    return [jnp.moveaxis(leaf, 0, axis) for leaf, axis in zip(scanned, axes, strict=True)]


def fold_block(monoid: Monoid, tree: Any, carrier: Sequence[Axes], over: str, state: list[Any]) -> list[Any]:
    """All steps of a block of states merged along the dimension `over`, in pairs; without prefixes that nobody reads.

    Of prefixes that are dropped derivatives are 0 times what they are made of, which is NaN beside an infinity.
    """
    axes = [leaf_axes.index(over) for leaf_axes in carrier]
    inner = [(over, *(name for name in leaf_axes if name != over)) for leaf_axes in carrier]
    steps = [jnp.moveaxis(leaf, axis, 0) for leaf, axis in zip(state, axes, strict=True)]
    while (count := steps[0].shape[0]) > 1:
        first, second = ([leaf[start : count - count % 2 : 2] for leaf in steps] for start in (0, 1))
        merged = combine_blocks(monoid, tree, inner, first, second)
        steps = [jnp.concatenate([one, leaf[count - count % 2 :]]) for one, leaf in zip(merged, steps, strict=True)]
    return [leaf[0] for leaf in steps]


_NATIVE_SCANS = {"sum": lax.cumsum, "max": lax.cummax, "min": lax.cummin}


def _native_scan(kind: Native | None, leaf: Any, axis: int, reverse: bool) -> Any:
    if kind in ("max", "min") and is_smooth(leaf):
        return running(kind, axis, reverse, leaf)
    return _NATIVE_SCANS[kind or ""](leaf, axis=axis, reverse=reverse)


def is_native_scan(monoid: Monoid, state: Sequence[Any]) -> bool:
    """Whether JAX has a primitive for the prefixes of these leaves."""
    return monoid.native in _NATIVE_SCANS and all(jnp.issubdtype(leaf.dtype, jnp.number) for leaf in state)


def shift_block(
    monoid: Monoid,
    tree: Any,
    carrier: Sequence[Axes],
    over: str,
    state: list[Any],
    reverse: bool = False,
    before: list[Any] | None = None,
) -> list[Any]:
    """Move every state one step on along `over`; `before` enters, a state without `over`, or else the identity.

    Inclusive prefixes become exclusive ones.
    """
    entering = identity_block(monoid, tree, carrier, state) if before is None else before
    shifted: list[Any] = []
    for leaf, first, axes in zip(state, entering, carrier, strict=True):
        axis = axes.index(over)
        size = leaf.shape[axis]
        if size == 0:
            shifted.append(leaf)
            continue
        edge = lax.slice_in_dim(first, 0, 1, axis=axis) if before is None else jnp.expand_dims(first, axis)
        kept = lax.slice_in_dim(leaf, 1, size, axis=axis) if reverse else lax.slice_in_dim(leaf, 0, size - 1, axis=axis)
        shifted.append(jnp.concatenate([kept, edge] if reverse else [edge, kept], axis=axis))
    return shifted


def last_of_block(carrier: Sequence[Axes], over: str, state: list[Any], reverse: bool = False) -> list[Any]:
    """The total of a block of inclusive prefixes: its last step (its first where `reverse`), without `over`."""
    totals: list[Any] = []
    for leaf, axes in zip(state, carrier, strict=True):
        axis = axes.index(over)
        totals.append(lax.index_in_dim(leaf, 0 if reverse else leaf.shape[axis] - 1, axis, keepdims=False))
    return totals
