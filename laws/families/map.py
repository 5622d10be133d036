"""The laws of maps: a kernel may be cut along every dimension that it declares bare, and reads what it declares."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.operations.dense import Dense, as_dense
from combinators.operations.execute import combine
from combinators.operations.shaped import block_structs
from laws.law import Law, drawn
from laws.subjects.leaf import IndexBox, LeafSubject, reads

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
    blocks = jax.device_get(s.blocks(operands, s.whole))
    clean = jax.device_get(s.kernel(*blocks))
    poisoned: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for label, box in _boxes(s):
        # The same compiled kernel on the same shapes: only what it reads can make a difference.
        seen = s.kernel(*(_poisoned(s, i, block, box) for i, block in enumerate(blocks)))
        poisoned[label] = s.part(jax.device_get(seen), box)
        wanted[label] = s.part(clean, box)
    return poisoned, wanted


def blocks(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Run the kernel on blocks that are cut along all map dimensions at once, and block by block of blocks."""
    whole = s.presented(s.run(operands, s.whole))
    found: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for label, box in _corners(s):
        found[label] = s.presented(s.run(operands, box))
        parts[label] = s.part(whole, box)
    return found, parts


def edges(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Run the kernel on blocks that go beyond a dimension, where coordinates repeat, and look at what lies inside."""
    whole = s.presented(s.run(operands, s.whole))
    found: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for dim in _told(s):
        size = s.shaped.sizes[dim]
        for label, box in (("before", (-_BEYOND, size)), ("after", (0, size + _BEYOND))):
            blocks = s.beyond(operands, dim, box)
            leaves = s.presented(jax.tree.leaves(s.shaped.operation.kernel(*blocks)))
            inside = s.whole | {dim: (-box[0], size - box[0])}
            found[f"{label} {dim}"] = s.part(leaves, inside, s.shaped.sizes | {dim: box[1] - box[0]})
            parts[f"{label} {dim}"] = whole
    return found, parts


def marginal(s: LeafSubject) -> tuple[Any, Any]:
    """Count what one more step costs, after a box and after a larger one; XLA counts, before it optimises.

    Where a window slides, what is shared by the windows of one length may cost once for all of them.
    """
    later: dict[str, Any] = {}
    sooner: dict[str, Any] = {}
    for dim in s.cuttable("map"):
        for step in _steps(s, dim):
            costs = [_cost(s, s.shaped.sizes | {dim: s.shaped.sizes[dim] + n * step}) for n in range(3)]
            low, middle, high = costs
            sooner[dim] = {key: middle[key] - low[key] for key in low}
            later[dim] = {key: high[key] - middle[key] for key in low}
            if sooner[dim] == later[dim]:
                break
    return later, sooner


def _steps(s: LeafSubject, dim: str) -> list[int]:
    """One cell; and as many as the longest window that slides along a dimension."""
    read = [a for o in s.shaped.signature.operands for a in o.axes if a.is_window and dim in a.names]
    windows = [s.shaped.sizes[term.name] for axis in read for term in axis.terms if term.name != dim]
    return [1, *([max(windows)] if windows and max(windows) > 1 else [])]


def dense(s: LeafSubject, operands: Any) -> tuple[Any, Any]:
    """Run the kernels that may stand in, on the whole and on every piece for which they may."""
    found: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    whole = s.presented(s.run(operands, s.whole))
    boxes = {"whole": s.whole, **{f"{d}={low}:{high}": s.whole | {d: (low, high)} for d, low, high in _pieces(s)}}
    for number, entry in _standing_in(s):
        for at, box in boxes.items():
            leaves = _stand_in(s, entry, operands, box)
            if leaves is not None:
                found[f"{number}, {at}"] = s.presented(leaves) if entry.gives == "state" else leaves
                wanted[f"{number}, {at}"] = s.part(whole, box)
        for dim in s.cuttable("fold") if entry.gives == "state" else ():
            # States of both kernels merge: they are of one carrier.
            middle, size = s.shaped.sizes[dim] // 2, s.shaped.sizes[dim]
            leaves = _stand_in(s, entry, operands, s.whole | {dim: (0, middle)})
            if leaves is not None:
                rest = s.run(operands, s.whole | {dim: (middle, size)})
                found[f"{number}, merged along {dim}"] = s.presented(combine(s.shaped, s.shaped.carrier, leaves, rest))
                wanted[f"{number}, merged along {dim}"] = whole
    return found, wanted


def _stand_in(s: LeafSubject, entry: Dense, operands: Any, box: IndexBox) -> list[Any] | None:
    """The leaves that a dense kernel gives for a box; None where it may not run there."""
    blocks = s.blocks(operands, box)
    may = entry.may_run(s.shaped.operation, blocks, [dim for dim in box if box[dim] != s.whole[dim]])
    return jax.tree.leaves(entry(*blocks)) if may else None


def _standing_in(s: LeafSubject) -> list[tuple[int, Dense]]:
    """The dense kernels for this platform that take whole blocks of the subject's types."""
    blocks = block_structs(s.shaped.signature, s.operands, s.shaped.sizes)
    here = "cuda" if jax.default_backend() == "gpu" else jax.default_backend()
    entries = [(number, as_dense(entry)) for number, entry in enumerate(s.shaped.operation.dense)]
    return [
        (number, entry)
        for number, entry in entries
        if (entry.platforms is None or here in entry.platforms) and entry.may_run(s.shaped.operation, blocks, ())
    ]


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


def _corners(s: LeafSubject) -> Iterator[tuple[str, IndexBox]]:
    """Boxes that are cut along every map dimension: after the half, and from there after one more."""
    dims, sizes = s.cuttable("map"), s.shaped.sizes
    halves = {dim: sizes[dim] // 2 for dim in dims}
    yield "first block", s.whole | {dim: (0, halves[dim]) for dim in dims}
    yield "last block", s.whole | {dim: (halves[dim], sizes[dim]) for dim in dims}
    yield "block of a block", s.whole | {dim: (min(halves[dim] + 1, sizes[dim] - 1), sizes[dim]) for dim in dims}


def _cost(s: LeafSubject, sizes: Mapping[str, int]) -> dict[str, int]:
    """Arithmetic operations of the kernel on blocks of an index space of these sizes."""
    box = {dim: (0, size) for dim, size in sizes.items()}
    structs: list[jax.ShapeDtypeStruct] = []
    given = iter(s.operands)
    for operand in s.shaped.signature.operands:
        if operand.coordinate is not None:
            structs.append(jax.ShapeDtypeStruct((sizes[operand.coordinate],), jnp.int32))
            continue
        known = next(given)
        shape = [
            known.shape[at]
            if axis.kind == "one"
            else math.prod(sizes[name] for name in axis.names)
            if axis.kind == "composite"
            else reads(axis, box)[1] - reads(axis, box)[0]
            for at, axis in enumerate(operand.axes)
        ]
        structs.append(jax.ShapeDtypeStruct(tuple(shape), known.dtype))
    with jax.default_device(_counting()):
        counted = jax.jit(s.shaped.operation.kernel).lower(*structs).cost_analysis() or {}
    return {key: round(counted.get(key, 0.0)) for key in ("flops", "transcendentals")}


def _counting() -> Any:
    """A CPU, if there is one: a GPU's client counts nothing before it compiles, and all kernels would cost alike."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def _counts(s: LeafSubject) -> str | None:
    """XLA counts `n log n` comparisons for a sort, with `n` all entries and not those of one row."""
    blocks = block_structs(s.shaped.signature, s.operands, s.shaped.sizes)
    steps = str(jax.make_jaxpr(s.shaped.operation.kernel)(*blocks))
    sorts = re.search(r"\b(sort|top_k)\[", steps) is not None
    return _cuts(s) or (f"`{s.name}` sorts, and XLA's count of a sort is none of its rows" if sorts else None)


def _poisoned(s: LeafSubject, number: int, block: np.ndarray[Any, Any], box: IndexBox) -> np.ndarray[Any, Any]:
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
        return np.where(inside, block, np.asarray(np.nan, block.dtype))
    other = ~block if block.dtype == jnp.bool_ else np.roll(block.ravel(), 1).reshape(block.shape)
    return np.where(inside, block, other)


def _cuts(s: LeafSubject) -> str | None:
    return None if s.cuttable("map") else f"`{s.name}` has no map dimension of two cells or more"


def _told(s: LeafSubject) -> list[str]:
    """The dimensions that a plan may cut and whose coordinates the kernel is told."""
    told = {operand.coordinate for operand in s.shaped.signature.operands}
    return [dim for dim in s.cuttable("map") if dim in told]


def _is_told(s: LeafSubject) -> str | None:
    return None if _told(s) else f"`{s.name}` is told no coordinates of a map dimension of two cells or more"


def _has_dense(s: LeafSubject) -> str | None:
    if not s.shaped.operation.dense:
        return f"`{s.name}` has no dense kernel"
    return None if _standing_in(s) else f"no dense kernel of `{s.name}` takes these operands on this platform"


_BEYOND = 2
"""Cells by which a block goes beyond its dimension; a halo of depth `n` computes as many for its neighbours' sake."""

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
    Law("map.blocks", "kernel(block of B) ~ block of kernel(B)", POLYHEDRAL, blocks, _OPERANDS, _cuts),
    Law(
        "map.edges",
        "kernel(B and cells beyond it, whose coordinates repeat the edge's) on B ~ kernel(B)",
        "docs/design/lowering.md: what a device computes for its neighbours' sake",
        edges,
        _OPERANDS,
        _is_told,
    ),
    Law(
        "map.marginal",
        "cost(n + 2k) - cost(n + k) ~ cost(n + k) - cost(n), along every map dimension, k one cell or window",
        "Tapestry: constant marginal costs, which is what makes a cut cost what it costs anywhere",
        marginal,
        applies=_counts,
        judged="object",
    ),
    Law(
        "map.dense",
        "dense(B) ~ kernel(B), for every B that its conditions allow",
        "declared: dense",
        dense,
        _OPERANDS,
        _has_dense,
    ),
)
