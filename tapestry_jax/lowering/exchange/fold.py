"""Folding over mesh axes: partial states on every device become the whole fold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.blocks import Axes, identity_block
from combinators.merging.extrema import Attained, Extremum
from combinators.operations.boxes import check_numbers
from combinators.operations.execute import states
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.exchange.collectives import NATIVE, extremum_over
from tapestry_jax.lowering.exchange.ordered import merge_ordered
from tapestry_jax.lowering.on_device.attained import value_of, with_counts, without_elements
from tapestry_jax.lowering.on_device.filled import filled_devices
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import valid_count, valid_counts
from tapestry_jax.lowering.on_device.read import crop_blocks
from tapestry_jax.lowering.on_device.varying import received, vary, varying_axes
from tapestry_jax.planning.folding.merges import Merge, mapped_frame, merges
from tapestry_jax.planning.folding.traffic import uneven_folds
from tapestry_jax.planning.geometry.layout import Cut

Cuts = Mapping[str, Cut]


def partial_states(
    shaped: Shaped, cuts: Cuts, sizes: Mapping[str, int], here: Here, blocks: Sequence[Any], written: Shaped
) -> list[Any]:
    """The state of this device's box, extrema with their counts; padding along fold dimensions is left out.

    Args:
      shaped: the operation with the kernels of devices.
      cuts: of its dimensions.
      sizes: of the box.
      here: this device.
      blocks: what the kernel is given.
      written: the operation with the kernels that somebody wrote.
    """
    uneven = uneven_folds(shaped, dict(cuts), here)
    if not uneven:
        return _counted(shaped, blocks)
    pad = shaped.operation.pad
    if pad is not None:
        neutral = _neutralised(shaped, cuts, uneven, pad, blocks, here)
        if neutral is not None:
            # Here, not at the top: few programs have blocks that are filled.
            from tapestry_jax.lowering.exchange.neutral import neutral_in

            counts = (valid_counts(cuts[dim], shaped.sizes[dim], here.size(cuts[dim].axes)) for dim in uneven)
            if neutral_in(written, blocks, uneven, sizes, empty=any(0 in each for each in counts)):
                return _counted(shaped, neutral)
    return _switch_on_counts(shaped, cuts, sizes, here, uneven, blocks, written)


def _counted(shaped: Shaped, blocks: Sequence[Any]) -> list[Any]:
    return with_counts(shaped, blocks, states(shaped, blocks))


def _neutralised(
    shaped: Shaped, cuts: Cuts, uneven: Sequence[str], pad: tuple[Any, ...], blocks: Sequence[Any], here: Here
) -> list[Any] | None:
    """Put the declared neutral values where operands are padded; None where an axis is more than bare."""
    masked: list[Any] = []
    values = iter(pad)
    covered: set[str] = set()
    for operand, block in zip(shaped.signature.operands, blocks, strict=True):
        if operand.coordinate is not None:
            masked.append(block)
            continue
        value = next(values)
        for number, axis in enumerate(operand.axes):
            dims = [term.name for term in axis.terms if term.name in uneven]
            if dims and axis.name is None:
                return None
            if dims and value is not None:
                covered.update(dims)
                count = vary(valid_count(cuts[dims[0]], shaped.sizes[dims[0]], here), sorted(varying_axes(block)))
                valid = lax.broadcasted_iota(jnp.int32, block.shape, number) < count
                block = jnp.where(valid, block, jnp.asarray(value, block.dtype))
        masked.append(block)
    return masked if covered == set(uneven) else None


def _switch_on_counts(
    shaped: Shaped,
    cuts: Cuts,
    sizes: Mapping[str, int],
    here: Here,
    uneven: Sequence[str],
    blocks: Sequence[Any],
    written: Shaped,
) -> list[Any]:
    """Run the kernel on exactly the valid cells: one branch for each combination of counts that occurs."""
    axes = sorted(frozenset().union(*(varying_axes(block) for block in blocks)))
    counts = [valid_counts(cuts[dim], shaped.sizes[dim], here.size(cuts[dim].axes)) for dim in uneven]
    chosen: Any = 0
    for dim, listed in zip(uneven, counts, strict=True):
        count = valid_count(cuts[dim], shaped.sizes[dim], here)
        position = sum((count < known).astype(jnp.int32) for known in listed[:-1]) if len(listed) > 1 else 0
        chosen = chosen * len(listed) + position

    def branch(valid: tuple[int, ...]) -> Callable[[list[Any]], list[Any]]:
        inner = {**sizes, **dict(zip(uneven, valid, strict=True))}

        def run(operands: list[Any]) -> list[Any]:
            if 0 in valid:
                full = jax.eval_shape(lambda b: states(shaped, b), operands)
                found = without_elements(shaped, _identity(shaped, full))
            else:
                cells = crop_blocks(shaped, operands, sizes, inner)
                # Of fewer cells than a device holds the kernel may be another one.
                check_numbers(written, written.operation.kernel, cells, inner, is_state=True)
                found = _counted(shaped, cells)
            return jax.tree.map(lambda leaf: vary(leaf, axes), found)

        return run

    branches = [branch(valid) for valid in itertools.product(*counts)]
    return lax.switch(vary(jnp.asarray(chosen, jnp.int32), axes), branches, list(blocks))


def _identity(shaped: Shaped, like: Sequence[Any]) -> list[Any]:
    assert shaped.operation.monoid is not None
    return identity_block(shaped.operation.monoid, shaped.state_tree, shaped.carrier, like)


def merge_states(
    shaped: Shaped, carrier: Sequence[Axes], cuts: Cuts, axes: tuple[str, ...], here: Here, state: list[Any]
) -> list[Any]:
    """Merge the states of all devices along `axes`, which `cuts` name; the result is the same on each of them."""
    assert shaped.operation.monoid is not None
    filled = filled_devices(shaped, cuts, axes, here)
    merged = [value_of(leaf) for leaf in state]
    for merge in merges(shaped):
        leaves = [state[i] for i in merge.leaves]
        part = [carrier[i] for i in merge.leaves]
        for position, leaf in zip(merge.leaves, _merge(merge, part, axes, here, leaves, filled), strict=True):
            merged[position] = leaf
    return merged


def _merge(
    merge: Merge, carrier: Sequence[Axes], axes: tuple[str, ...], here: Here, state: list[Any], filled: Any
) -> list[Any]:
    if merge.kind == "frame":
        return _merge_framed(merge, carrier, axes, here, state)
    if merge.kind == "ordered":
        return merge_ordered(merge, carrier, axes, here, state, filled)
    return [_natively(merge.kind, leaf, axes, here) for leaf in state]


def _natively(kind: str, leaf: Any, axes: tuple[str, ...], here: Here) -> Any:
    """One native collective; none where the leaf is the same on all devices, such as a count of rows."""
    if isinstance(leaf, Attained):
        if not varying_axes(leaf.value) & set(axes):
            return leaf.value
        both = vary(leaf.value, axes), vary(leaf.count, axes)
        return received(extremum_over(cast("Extremum", kind), axes, *both))
    if varying_axes(leaf) & set(axes):
        return received(NATIVE[kind](vary(leaf, axes), axes))
    return leaf * here.size(axes) if kind == "sum" else leaf


def _merge_framed(
    merge: Merge, carrier: Sequence[Axes], axes: tuple[str, ...], here: Here, state: list[Any]
) -> list[Any]:
    """Find the frame by one native collective, then add what the states are in it by another."""
    assert merge.monoid.frame is not None
    frame = mapped_frame(merge, carrier, state)
    # The fold is the same for every admissible frame, so the frame carries no derivative.
    summaries = frame.summary([lax.stop_gradient(leaf) for leaf in state])
    kind = merge.monoid.frame.merge
    reference = [lax.stop_gradient(leaf) for leaf in frame.at([_natively(kind, s, axes, here) for s in summaries])]
    addends = frame.express(state, [vary(leaf, axes) for leaf in reference])
    return frame.restore(reference, [_natively("sum", leaf, axes, here) for leaf in addends])
