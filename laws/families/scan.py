"""The laws of scans: every prefix is a fold, and the second half continues from the total of the first."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.merging.blocks import Axes, combine_blocks, identity_block, last_of_block, scan_block, shift_block
from combinators.merging.monoid import Monoid
from combinators.operations.execute import present, scan_states
from laws.law import Law, drawn
from laws.subjects.leaf import LeafSubject

BLELLOCH = "Blelloch 1990, section 1.1"


def prefix(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Scan, and fold step by step."""
    steps = s.run(operands, s.whole)
    scanned = present(s.shaped, scan_states(s.shaped, steps))
    return scanned, present(s.shaped, _one_by_one(s, steps))


def continuation(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Scan the halves of the steps, and merge the total of one into the other."""
    carrier, over = s.shaped.carrier, _over(s)
    monoid, tree, reverse = _merged_by(s)
    size = s.shaped.sizes[over]
    boxes = [s.whole | {over: span} for span in ((0, size // 2), (size // 2, size))]
    halves = [scan_block(monoid, tree, carrier, over, s.run(operands, box), reverse) for box in boxes]
    ahead, behind = (1, 0) if reverse else (0, 1)
    total = _spread(carrier, over, last_of_block(carrier, over, halves[ahead], reverse), halves[behind])
    # Reversed, the total belongs to what comes later, and stays on the right.
    pair = (halves[behind], total) if reverse else (total, halves[behind])
    halves[behind] = combine_blocks(monoid, tree, carrier, *pair)
    joined = [jnp.concatenate(pieces, axis=axes.index(over)) for *pieces, axes in zip(*halves, carrier, strict=True)]
    whole = scan_block(monoid, tree, carrier, over, s.run(operands, s.whole), reverse)
    return present(s.shaped, joined), present(s.shaped, whole)


def last(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Take the last prefix, and fold all steps from the other end."""
    steps, over, carrier = s.run(operands, s.whole), _over(s), s.shaped.carrier
    monoid, tree, reverse = _merged_by(s)
    total = last_of_block(carrier, over, scan_block(monoid, tree, carrier, over, steps, reverse), reverse)
    without = _without(s)
    cut = [_step(s, steps, t) for t in range(s.shaped.sizes[over])]
    folded = functools.reduce(lambda right, left: combine_blocks(monoid, tree, without, left, right), reversed(cut))
    return total, folded


def exclusive(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Combine what lies before every step with the step."""
    steps, over, carrier = s.run(operands, s.whole), _over(s), s.shaped.carrier
    monoid, tree, reverse = _merged_by(s)
    inclusive = scan_block(monoid, tree, carrier, over, steps, reverse)
    before = shift_block(monoid, tree, carrier, over, inclusive, reverse)
    pair = (steps, before) if reverse else (before, steps)
    return combine_blocks(monoid, tree, carrier, *pair), inclusive


def segments(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Scan with a flag that starts anew, and scan every segment on its own."""
    steps, over, carrier = s.run(operands, s.whole), _over(s), s.shaped.carrier
    monoid, tree, reverse = _merged_by(s)
    size = s.shaped.sizes[over]
    starts = [0, 1] if size < 7 else [0, 1, size // 2]
    first = {low - 1 if reverse else low for low in (*starts[1:], size if reverse else 0)}
    flags = [
        jnp.isin(_coordinates(leaf, axes, over), jnp.asarray(sorted(first)))
        for leaf, axes in zip(steps, carrier, strict=True)
    ]
    segmented = Monoid((False, 0), functools.partial(_restarting, monoid, reverse))
    # A flag for every leaf, so that cells stay cells; they all say the same.
    both = scan_block(
        segmented,
        jax.tree.structure((flags, jax.tree.unflatten(tree, steps))),
        (*carrier, *carrier),
        over,
        [*flags, *steps],
        reverse,
    )
    spans = list(itertools.pairwise([*starts, size]))
    alone = [scan_block(monoid, tree, carrier, over, _span(s, steps, span), reverse) for span in spans]
    joined = [jnp.concatenate(pieces, axis=axes.index(over)) for *pieces, axes in zip(*alone, carrier, strict=True)]
    return both[len(flags) :], joined


def _restarting(monoid: Monoid, reverse: bool, left: Any, right: Any) -> Any:
    """The segmented monoid: the later state alone where it starts a segment. Source: Blelloch 1990, section 1.5."""
    early, late = (right, left) if reverse else (left, right)
    merged = jax.tree.leaves(monoid.merge(left[1], right[1]))
    alone, tree = jax.tree.flatten(late[1])
    chosen = [jnp.where(flag, one, both) for flag, one, both in zip(late[0], alone, merged, strict=True)]
    flags = [a | b for a, b in zip(early[0], late[0], strict=True)]
    return flags, jax.tree.unflatten(tree, chosen)


def _coordinates(leaf: Any, axes: Axes, over: str) -> Any:
    return lax.broadcasted_iota(jnp.int32, leaf.shape, axes.index(over))


def _span(s: LeafSubject, steps: Sequence[Any], span: tuple[int, int]) -> list[Any]:
    over = _over(s)
    return [lax.slice_in_dim(x, *span, axis=axes.index(over)) for x, axes in zip(steps, s.shaped.carrier, strict=True)]


def _step(s: LeafSubject, steps: Sequence[Any], t: int) -> list[Any]:
    over = _over(s)
    return [
        lax.index_in_dim(x, t, axes.index(over), keepdims=False)
        for x, axes in zip(steps, s.shaped.carrier, strict=True)
    ]


def _without(s: LeafSubject) -> list[Axes]:
    return [tuple(name for name in axes if name != _over(s)) for axes in s.shaped.carrier]


def _over(s: LeafSubject) -> str:
    assert s.shaped.operation.over is not None
    return s.shaped.operation.over


def _merged_by(s: LeafSubject) -> tuple[Monoid, Any, bool]:
    """The monoid of a scan, the structure of its states, and whether it runs from the end."""
    monoid = s.shaped.operation.monoid
    assert monoid is not None
    return monoid, s.shaped.state_tree, s.shaped.operation.reverse


def _one_by_one(s: LeafSubject, steps: Sequence[Any]) -> list[Any]:
    """The prefixes by the definition: a running total, one step after the other."""
    operation, carrier, over = s.shaped.operation, s.shaped.carrier, _over(s)
    monoid, tree, _ = _merged_by(s)
    without = _without(s)
    size = s.shaped.sizes[over]
    total: list[Any] | None = None
    found: list[list[Any]] = []
    for t in reversed(range(size)) if operation.reverse else range(size):
        step = _step(s, steps, t)
        before = identity_block(monoid, tree, without, step) if total is None else total
        pair = (step, before) if operation.reverse else (before, step)
        total = step if total is None else combine_blocks(monoid, tree, without, *pair)
        found.append(before if operation.exclusive else total)
    if operation.reverse:
        found.reverse()
    return [jnp.stack(column, axis=axes.index(over)) for *column, axes in zip(*found, carrier, strict=True)]


def _spread(carrier: Sequence[Axes], over: str, total: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    return [
        jnp.broadcast_to(jnp.expand_dims(leaf, axes.index(over)), block.shape)
        for leaf, block, axes in zip(total, like, carrier, strict=True)
    ]


def _scans(s: LeafSubject) -> str | None:
    return None if s.shaped.sizes[_over(s)] >= 2 else f"`{s.name}` scans a single step"


_OPERANDS = drawn("operands", "operands")

LAWS = (
    Law("scan.prefix", "scan(x)[t] ~ x[0] + ... + x[t]", BLELLOCH, prefix, _OPERANDS, _scans, depth=4),
    Law(
        "scan.continuation",
        "scan(xs) ++ (total of xs + scan(ys)) ~ scan(xs ++ ys)",
        BLELLOCH,
        continuation,
        _OPERANDS,
        _scans,
        depth=4,
    ),
    Law("scan.last", "last of scan(xs) ~ x1 + (x2 + (... + xn))", BLELLOCH, last, _OPERANDS, _scans, depth=4),
    Law(
        "scan.exclusive", "exclusive(xs)[t] + xs[t] ~ inclusive(xs)[t]", BLELLOCH, exclusive, _OPERANDS, _scans, depth=4
    ),
    Law(
        "scan.segments",
        "scan with flags(xs ++ ys ++ zs) ~ scan(xs) ++ scan(ys) ++ scan(zs)",
        "Blelloch 1990, section 1.5: segmented scans",
        segments,
        _OPERANDS,
        _scans,
        depth=4,
    ),
)
