"""The laws of folds: partial states merge to the state of the whole, and neutral padding changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.merging.blocks import identity_block
from combinators.operations.execute import combine
from laws.law import Law, drawn
from laws.subjects.leaf import LeafSubject

PADDING = 2


def fold(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Merge the states of two pieces, and of three in both bracketings, along every fold dimension."""
    whole = s.presented(s.run(operands, s.whole))
    merged: dict[str, Any] = {}
    for dim in _ordered(s):
        size = s.shaped.sizes[dim]
        edges = sorted({0, 1, max(1, size - size // 2), size})
        pieces = [s.run(operands, s.whole | {dim: span}) for span in itertools.pairwise(edges)]
        merged[f"{dim} from the left"] = s.presented(_merged(s, pieces))
        merged[f"{dim} from the right"] = s.presented(_merged(s, pieces, from_right=True))
    return merged, dict.fromkeys(merged, whole)


def pad(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Append neutral cells along every fold dimension for which they are declared."""
    blocks = s.blocks(operands, s.whole)
    whole = s.presented(jax.tree.leaves(s.shaped.operation.kernel(*blocks)))
    padded = {
        dim: s.presented(jax.tree.leaves(s.shaped.operation.kernel(*_padded(s, blocks, dim)))) for dim in _paddable(s)
    }
    return padded, dict.fromkeys(padded, whole)


def empty(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Merge the state of the whole with pieces that hold nothing, on both sides."""
    state = s.run(operands, s.whole)
    operation, carrier, tree = s.shaped.operation, s.shaped.carrier, s.shaped.state_tree
    assert operation.monoid is not None
    nothing = identity_block(operation.monoid, tree, carrier, state)
    around = [_merged(s, pieces) for pieces in ([nothing, state], [state, nothing], [nothing, nothing, state])]
    return [s.presented(each) for each in around], [s.presented(state)] * len(around)


def permutation(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Merge pieces in another order."""
    found: dict[str, Any] = {}
    for dim in s.cuttable("fold"):
        edges = sorted({0, 1, s.shaped.sizes[dim] // 2, s.shaped.sizes[dim]})
        pieces = [s.run(operands, s.whole | {dim: span}) for span in itertools.pairwise(edges)]
        found[dim] = s.presented(_merged(s, [*pieces[1:], pieces[0]]))
    return found, dict.fromkeys(found, s.presented(s.run(operands, s.whole)))


def _merged(s: LeafSubject, pieces: Sequence[list[Any]], from_right: bool = False) -> list[Any]:
    if not from_right:
        total = pieces[0]
        for piece in pieces[1:]:
            total = combine(s.shaped, s.shaped.carrier, total, piece)
        return total
    total = pieces[-1]
    for piece in reversed(pieces[:-1]):
        total = combine(s.shaped, s.shaped.carrier, piece, total)
    return total


def _ordered(s: LeafSubject) -> list[str]:
    """The fold dimensions that may be cut; without commutativity only the outermost keeps the order."""
    monoid = s.shaped.operation.monoid
    assert monoid is not None
    dims = s.cuttable("fold")
    return dims if monoid.commutative else [dim for dim in dims if dim == s.shaped.signature.fold_dims[0]]


def _values(s: LeafSubject) -> list[float | int | None]:
    """The neutral value of every operand of the signature; None for coordinates."""
    declared = iter(s.shaped.operation.pad or ())
    return [None if o.coordinate is not None else next(declared, None) for o in s.shaped.signature.operands]


def _paddable(s: LeafSubject) -> list[str]:
    """The fold dimensions that stand bare wherever they stand, on an operand with a neutral value among others."""
    found: list[str] = []
    for dim in s.shaped.signature.fold_dims:
        axes = [a for o in s.shaped.signature.operands for a in o.axes if dim in a.names]
        pairs = zip(s.shaped.signature.operands, _values(s), strict=True)
        declared = any(value is not None and dim in operand.names for operand, value in pairs)
        if declared and all(axis.name == dim for axis in axes):
            found.append(dim)
    return found


def _padded(s: LeafSubject, blocks: Sequence[Any], dim: str) -> list[Any]:
    padded: list[Any] = []
    for operand, block, value in zip(s.shaped.signature.operands, blocks, _values(s), strict=True):
        if operand.coordinate == dim:
            # As on devices: coordinates end with the dimension, and repeat there.
            ends = jnp.arange(block.shape[0] + PADDING, dtype=block.dtype)
            padded.append(jnp.minimum(ends, max(block.shape[0] - 1, 0)))
            continue
        widths = [(0, PADDING if axis.name == dim else 0) for axis in operand.axes]
        if operand.coordinate is not None or not any(after for _, after in widths):
            padded.append(block)
        elif value is None:
            padded.append(jnp.pad(block, widths, mode="edge"))
        else:
            padded.append(jnp.pad(block, widths, constant_values=value))
    return padded


def _folds(s: LeafSubject) -> str | None:
    return None if _ordered(s) else f"`{s.name}` has no fold dimension of two cells or more that may be cut"


def _commutes(s: LeafSubject) -> str | None:
    monoid = s.shaped.operation.monoid
    if monoid is None or not monoid.commutative:
        return f"the monoid of `{s.name}` does not declare commutative"
    return _folds(s)


def _pads(s: LeafSubject) -> str | None:
    return None if _paddable(s) else f"`{s.name}` declares no neutral value along a bare fold dimension"


_OPERANDS = drawn("operands", "operands")

LAWS = (
    Law(
        "reduce.fold",
        "kernel(B1) + kernel(B2) ~ kernel(B1 and B2)",
        "docs/design/conventions.md; Gonzalez, Yang and others: list homomorphisms",
        fold,
        _OPERANDS,
        _folds,
    ),
    Law(
        "reduce.empty",
        "e + kernel(B), kernel(B) + e, e + e + kernel(B) ~ kernel(B)",
        "a device without cells holds the identity",
        empty,
        _OPERANDS,
    ),
    Law(
        "reduce.permutation",
        "kernel(B2) + kernel(B1) ~ kernel(B1 and B2)",
        "declared: commutative",
        permutation,
        _OPERANDS,
        _commutes,
    ),
    Law("reduce.pad", "kernel(B and neutral cells) ~ kernel(B)", "declared: pad", pad, _OPERANDS, _pads),
)
