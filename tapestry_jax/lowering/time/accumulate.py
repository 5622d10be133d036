"""Adding up states from turn to turn of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.blocks import Axes, combine_blocks, merge_behind
from combinators.merging.extrema import Attained, Extremum, merge_attained
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.folding.merges import Merge, mapped_frame, merges


def accumulate(
    shaped: Shaped,
    carrier: Sequence[Axes],
    before: list[Any],
    own: list[Any],
    there: Any,
    some: Any = True,
    *,
    reverse: bool = False,
) -> list[Any]:
    """What a loop has come to after a turn, with small residuals for the backward pass.

    Args:
      shaped: the fold.
      carrier: the axes of the leaves of its state.
      before: the turns before.
      own: this turn.
      there: whether the turns before hold something; a boolean scalar.
      some: whether this turn does; True where every turn does.
      reverse: whether they lie on the right.
    """
    assert shaped.operation.monoid is not None
    total = list(before)
    for merge in merges(shaped):
        axes = [carrier[i] for i in merge.leaves]
        earlier, later = [before[i] for i in merge.leaves], [own[i] for i in merge.leaves]
        first, second = (later, earlier) if reverse else (earlier, later)
        if merge.kind == "frame":
            merged = _in_frame(merge, axes, first, second)
        elif isinstance(first[0], Attained):
            pairs = zip(first, second, strict=True)
            merged = [merge_attained(cast("Extremum", merge.kind), a, b) for a, b in pairs]
        else:
            merged = merge_behind(merge.monoid, merge.tree, axes, earlier, later, there, reverse, some)
        for position, leaf in zip(merge.leaves, merged, strict=True):
            total[position] = leaf
    return total


def _in_frame(merge: Merge, carrier: Sequence[Axes], left: list[Any], right: list[Any]) -> list[Any]:
    """Add two states up in a common frame.

    The fold is the same in every frame, so that the frame carries no derivative. What is carried then enters linearly,
    and a loop need not store it for its backward pass. The value is that of the monoid itself: to express what is
    carried in a frame and to restore it rounds it several times a turn.
    """
    assert merge.monoid.frame is not None
    both = combine_blocks(
        merge.monoid, merge.tree, carrier, *([lax.stop_gradient(x) for x in s] for s in (left, right))
    )
    frame = mapped_frame(merge, carrier, left)
    reference = [lax.stop_gradient(leaf) for leaf in frame.at(frame.summary(both))]
    addends = zip(frame.express(left, reference), frame.express(right, reference), strict=True)
    restored = frame.restore(reference, [a + b for a, b in addends])
    return [
        _with_value(own, value) if jnp.issubdtype(own.dtype, jnp.floating) else value
        for own, value in zip(restored, both, strict=True)
    ]


@jax.custom_jvp
def _with_value(framed: Any, value: Any) -> Any:
    """The value, with the derivative of the same in a frame: what is not differentiated does not compute that."""
    del framed
    return value


@_with_value.defjvp
def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
    return _with_value(*primals), tangents[0]
