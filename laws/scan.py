"""The laws of scans: every prefix is a fold, and the second half continues from the total of the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.blocks import Axes, combine_blocks, identity_block, last_of_block, scan_block
from combinators.execute import present, scan_states
from laws.law import Law, drawn
from laws.leaf import LeafSubject

BLELLOCH = "Blelloch 1990, section 1.1"


def prefix(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Scan, and fold step by step."""
    steps = s.run(operands, s.whole)
    scanned = present(s.shaped, scan_states(s.shaped, steps))
    return scanned, present(s.shaped, _one_by_one(s, steps))


def continuation(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Scan the halves of the steps, and merge the total of one into the other."""
    operation, carrier, over = s.shaped.operation, s.shaped.carrier, _over(s)
    monoid, tree, reverse = operation.monoid, s.shaped.state_tree, operation.reverse
    assert monoid is not None
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


def _over(s: LeafSubject) -> str:
    assert s.shaped.operation.over is not None
    return s.shaped.operation.over


def _one_by_one(s: LeafSubject, steps: Sequence[Any]) -> list[Any]:
    """The prefixes by the definition: a running total, one step after the other."""
    operation, carrier, over = s.shaped.operation, s.shaped.carrier, _over(s)
    monoid, tree = operation.monoid, s.shaped.state_tree
    assert monoid is not None
    without: list[Axes] = [tuple(name for name in axes if name != over) for axes in carrier]
    size = s.shaped.sizes[over]
    total: list[Any] | None = None
    found: list[list[Any]] = []
    for t in reversed(range(size)) if operation.reverse else range(size):
        step = [
            lax.index_in_dim(x, t, axes.index(over), keepdims=False) for x, axes in zip(steps, carrier, strict=True)
        ]
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
)
