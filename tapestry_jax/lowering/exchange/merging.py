"""Whether the monoid of an operation merges as the plan takes it to: its states are merged once in each way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from combinators.claims.cut import Boxed
from combinators.claims.merged import Claimed, merges_otherwise
from combinators.claims.outside import outside
from combinators.declared.compared import wide
from combinators.errors import KernelError, message
from combinators.kernels.captured import program_at
from combinators.merging.blocks import Axes, combine_blocks
from combinators.merging.foreign import is_foreign
from combinators.merging.monoid import Monoid
from combinators.merging.parts import SideBySide
from combinators.operations.execute import present
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, block_structs
from tapestry_jax.planning.folding.merges import Merge, mapped_frame, merges
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import ring_of

ASSOCIATIVE, COMMUTATIVE, PARTS = "associative", "commutative", "parts"
_WHAT = {
    ASSOCIATIVE: (
        "is not associative",
        "(a + b) + c is not a + (b + c), and plans merge in their own order",
    ),
    COMMUTATIVE: ("declares commutative=True, and is not", "a + b is not b + a, and this plan merges in another order"),
    PARTS: ("does not merge as its parts or its frame do", "devices merge by them, and come to something else"),
}
_REMEDY = {
    ASSOCIATIVE: "Write a `combine` for which both are equal (tp.laws draws states that tell), or do not cut {dims}.",
    COMMUTATIVE: "Leave commutative=True out: plans then keep the order, and refuse what cannot.",
    PARTS: "Mend or leave out `frame` and `parts` (tp.laws draws states that tell).",
}

State = list[Any]


def check_merging(shaped: Shaped, blocks: Sequence[Any], cuts: Mapping[str, Cut]) -> None:
    """Refuse a monoid that somebody wrote and that does not merge as a plan takes it to: it is run on a few numbers.

    Args:
      shaped: the operation with the kernel that somebody wrote.
      blocks: what the kernel is given, or the types of that.
      cuts: of its dimensions.

    Raises:
      KernelError: when states come to something else in one way than in the other.
    """
    monoid, known = shaped.operation.monoid, shaped.known
    relied = list(_relied_on(shaped, cuts)) if monoid is not None else []
    if monoid is None or not relied or not _is_foreign(shaped, monoid):
        return
    types = [Struct(block.shape, block.dtype) for block in _arrays(shaped, blocks)]
    for claim in relied:
        if ("merges", claim) not in known:
            known["merges", claim] = outside(partial(_fails, shaped, types, claim))
        if known["merges", claim]:
            raise _refused(shaped, claim, cuts)


def _relied_on(shaped: Shaped, cuts: Mapping[str, Cut]) -> Iterator[str]:
    operation, folds = shaped.operation, shaped.signature.fold_dims
    assert operation.monoid is not None
    cut = [dim for dim in folds if dim in cuts]
    if cut or operation.over in cuts:
        yield ASSOCIATIVE
    if cut and (operation.monoid.parts or operation.monoid.frame is not None):
        yield PARTS
    if (
        operation.monoid.commutative
        and operation.monoid.native is None
        and any(
            cuts[dim].striped or dim != folds[0] or any(ring_of(axis) is not None for axis in cuts[dim].axes)
            for dim in cut
        )
    ):
        yield COMMUTATIVE


def _is_foreign(shaped: Shaped, monoid: Monoid) -> bool:
    if ("foreign", "monoid") not in shaped.known:
        shaped.known["foreign", "monoid"] = is_foreign(monoid)
    return shaped.known["foreign", "monoid"]


def _arrays(shaped: Shaped, blocks: Sequence[Any]) -> Iterator[Any]:
    pairs = zip(shaped.signature.operands, blocks, strict=True)
    return (block for operand, block in pairs if operand.coordinate is None)


def _fails(shaped: Shaped, types: Sequence[Struct], claim: str) -> bool:
    operation, carrier = shaped.operation, shaped.carrier
    assert operation.monoid is not None
    asked = [each for each in merges(shaped) if is_foreign(each.monoid)]
    merge: Callable[[State, State], State] = partial(combine_blocks, operation.monoid, shaped.state_tree, carrier)
    if own := _is_of_its_parts(operation.monoid):
        merge = partial(_by_parts, shaped, asked, _combined)
    else:
        asked = merges(shaped)

    def turned(first: State, second: State) -> State:
        return _by_parts(shaped, asked, _turned, first, second) if own else merge(second, first)

    def program(types: Sequence[Struct], sizes: dict[str, int]) -> Any:
        return program_at(operation.kernel, block_structs(shaped.signature, types, sizes))

    # Few bits tell little: it is asked on wide floats, if it takes them.
    wider = [Struct(each.shape, wide(each)) for each in types]
    at = partial(program, types if program(wider, dict(shaped.sizes)) is None else wider)
    boxed = Boxed(shaped.signature, shaped.sizes, shaped.result_axes, merge, partial(present, shaped), at)
    over = operation.over
    if claim == ASSOCIATIVE:
        both = Claimed(3, lambda s: merge(merge(s[0], s[1]), s[2]), lambda s: merge(s[0], merge(s[1], s[2])))
        return merges_otherwise(boxed, both, over, None if over is None else [axes.index(over) for axes in carrier])
    if claim == COMMUTATIVE:
        return merges_otherwise(boxed, Claimed(2, lambda s: merge(*s), lambda s: turned(*s)))
    return merges_otherwise(boxed, Claimed(2, lambda s: merge(*s), lambda s: _by_parts(shaped, asked, _by_devices, *s)))


def _is_of_its_parts(monoid: Monoid) -> bool:
    """Whether a product combines by the parts that it names, as those of this library do: each is asked alone."""
    return not monoid.parts or (isinstance(monoid.combine, SideBySide) and all(map(_is_of_its_parts, monoid.parts)))


def _by_parts(shaped: Shaped, parts: Sequence[Merge], merge: Callable[..., State], *states: State) -> State:
    """Two states of which some parts are merged, each in its way, and all else is left as it is in the first."""
    total = list(states[0])
    for part in parts:
        axes = [tuple(shaped.carrier[i]) for i in part.leaves]
        merged = merge(part, axes, [[state[i] for i in part.leaves] for state in states])
        for position, leaf in zip(part.leaves, merged, strict=True):
            total[position] = leaf
    return total


def _combined(part: Merge, axes: Sequence[Axes], pair: Sequence[State]) -> State:
    return combine_blocks(part.monoid, part.tree, axes, *pair)


def _turned(part: Merge, axes: Sequence[Axes], pair: Sequence[State]) -> State:
    return _combined(part, axes, pair[::-1])


def _by_devices(part: Merge, axes: Sequence[Axes], pair: Sequence[State]) -> State:
    """As those of two devices: in a frame, or by the `combine` of the part."""
    return _in_frame(part, axes, pair) if part.kind == "frame" else _combined(part, axes, pair)


def _in_frame(merge: Merge, axes: Sequence[Axes], pair: Sequence[State]) -> State:
    frame = mapped_frame(merge, axes, pair[0])
    assert merge.monoid.frame is not None
    together = jnp.maximum if merge.monoid.frame.merge == "max" else jnp.add
    reference = frame.at(jax.tree.map(together, *map(frame.summary, pair)))
    return frame.restore(reference, jax.tree.map(jnp.add, *(frame.express(state, reference) for state in pair)))


def _refused(shaped: Shaped, claim: str, cuts: Mapping[str, Cut]) -> KernelError:
    (is_wrong, why), operation = _WHAT[claim], shaped.operation
    dims = " and ".join(f"`{dim}`" for dim in (*shaped.signature.fold_dims, operation.over) if dim in cuts)
    return KernelError(
        message(
            f"the monoid {operation.monoid!r} of `{operation.name}` {is_wrong}",
            f"signature {shaped.signature}",
            why,
            remedy=_REMEDY[claim].format(dims=dims),
        )
    )
