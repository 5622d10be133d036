"""The laws of maps: a kernel may be cut along every dimension that it declares bare, and reads what it declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from laws.law import Law, drawn
from laws.leaf import IndexBox, LeafSubject, reads

POLYHEDRAL = "docs/design/conventions.md; Tapestry's polyhedral signatures"


def split(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Run the kernel on the pieces of every map dimension, cut at 1 and in the middle."""
    whole = s.presented(s.run(operands, s.whole))
    pieces: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for dim, low, high in _pieces(s):
        box = s.whole | {dim: (low, high)}
        pieces[f"{dim}={low}:{high}"] = s.presented(s.run(operands, box))
        parts[f"{dim}={low}:{high}"] = s.part(whole, box)
    return pieces, parts


def footprint(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Poison all that the projections of a box do not name, and look at the box."""
    blocks = s.blocks(operands, s.whole)
    clean = s.presented(jax.tree.leaves(s.kernel(*blocks)))
    poisoned: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for label, box in _boxes(s):
        # The same compiled kernel on the same shapes: only what it reads can make a difference.
        seen = jax.tree.leaves(s.kernel(*(_poisoned(s, i, block, box) for i, block in enumerate(blocks))))
        poisoned[label] = s.part(s.presented(seen), box)
        wanted[label] = s.part(clean, box)
    return poisoned, wanted


def dense(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Run the kernels for the uncut case."""
    blocks = s.blocks(operands, s.whole)
    plain = s.presented(jax.tree.leaves(s.shaped.operation.kernel(*blocks)))
    others = [jax.tree.leaves(kernel(*blocks)) for kernel in s.shaped.operation.dense]
    return others, [plain] * len(others)


def _pieces(s: LeafSubject) -> Iterator[tuple[str, int, int]]:
    for dim in s.cuttable("map"):
        size = s.shaped.sizes[dim]
        for cut in sorted({1, size // 2}):
            yield dim, 0, cut
            yield dim, cut, size


def _boxes(s: LeafSubject) -> Iterator[tuple[str, IndexBox]]:
    """Half of every map dimension, its last coordinate, and single points of all of them."""
    dims = s.cuttable("map")
    sizes = s.shaped.sizes
    for dim in dims:
        for low, high in ((0, (sizes[dim] + 1) // 2), (sizes[dim] - 1, sizes[dim])):
            yield f"{dim}={low}:{high}", s.whole | {dim: (low, high)}
    for label, at in (("first point", 0.0), ("middle point", 0.5)):
        yield label, s.whole | {dim: (int(at * sizes[dim]), int(at * sizes[dim]) + 1) for dim in dims}


def _poisoned(s: LeafSubject, number: int, block: Any, box: IndexBox) -> Any:
    """A block with all cells outside of what the box reads replaced: floats by NaN, the others by their neighbours."""
    operand = s.shaped.signature.operands[number]
    if operand.coordinate is not None:
        return block
    inside = np.ones(block.shape, bool)
    for at, axis in enumerate(operand.axes):
        mask = np.zeros(block.shape[at], bool)
        if axis.kind == "composite":
            shape = [s.shaped.sizes[name] for name in axis.names]
            grid = np.zeros(shape, bool)
            grid[tuple(slice(*box[name]) for name in axis.names)] = True
            mask = grid.ravel()
        elif axis.kind == "one":
            mask[:] = True
        else:
            origin = reads(axis, s.whole)[0]
            low, high = reads(axis, box)
            mask[low - origin : high - origin] = True
        inside &= mask.reshape([-1 if i == at else 1 for i in range(block.ndim)])
    if jnp.issubdtype(block.dtype, jnp.inexact):
        return jnp.where(inside, block, jnp.nan)
    other = ~block if block.dtype == jnp.bool_ else jnp.roll(block.ravel(), 1).reshape(block.shape)
    return jnp.where(inside, block, other)


def _cuts(s: LeafSubject) -> str | None:
    return None if s.cuttable("map") else f"`{s.name}` has no map dimension of two cells or more"


def _has_dense(s: LeafSubject) -> str | None:
    return None if s.shaped.operation.dense else f"`{s.name}` has no dense kernel"


_OPERANDS = drawn("operands", "operands")

LAWS = (
    Law("map.split", "kernel(piece of B) ~ piece of kernel(B)", POLYHEDRAL, split, _OPERANDS, _cuts),
    Law(
        "map.footprint",
        "kernel(poison outside of projection(box)) on the box ~ kernel(B) on the box",
        POLYHEDRAL,
        footprint,
        _OPERANDS,
        _cuts,
        judged="bits",
        eager=True,
    ),
    Law("map.dense", "dense(B) ~ kernel(B)", "declared: dense", dense, _OPERANDS, _has_dense),
)
