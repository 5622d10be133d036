"""Which choices a program and a mesh have."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from combinators.graphs import walk
from combinators.graphs.graph import Graph
from tapestry_jax.planning.entries.items import axes_of
from tapestry_jax.planning.entries.placement import why_whole
from tapestry_jax.planning.entries.remat import recomputable
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space, Variable

CHUNKS = (2, 8, 32)
"""Into how many chunks a loop in time may take a dimension, where that divides it; `between` says what else."""
_POWERS, _WASTE = 11, 0.02
"""Other numbers are below 2 ** 11, and at most so much of what they compute is beyond the end."""
DEPTHS = (2, 4, 8)
"""How many turns one exchange of a halo may serve."""
KINDS = ("axes", "stripes", "ring", "stored", "remat", "chunks", "halo", "except")
"""Kinds of variables in the order in which candidates are made of them."""


def space_of(problem: Problem) -> Space:
    """The choices of a problem; what the user fixed is none."""
    parts = _of_dimensions, _of_turns, _of_storage, _of_remat, _of_classes
    found = [each for part in parts for each in part(problem)]
    ordered = sorted(found, key=lambda each: KINDS.index(each.kind))
    fixed = tuple((name, axes_of(items)) for name, items in problem.fixed.entries)
    return Space(tuple(ordered), _meetings(problem.graph), fixed, bool(problem.fixed.ops))


def _of_dimensions(problem: Problem) -> Iterator[Variable]:
    """Mesh axes of every dimension that some operation can cut, and how its pieces are taken."""
    sizes, fixed = cuttable(problem.graph), {name for name, _ in problem.fixed.entries}
    iterated = {name for _, loop in walk.loops(problem.graph) for name in _windows(loop.body)}
    axes = problem.shape.real(problem.shape.names)
    striped = _read_by_coordinate(problem.graph)
    for name, size in sizes.items():
        if name in fixed or size < 2:
            continue
        together = tuple(each for each in subsets(axes) if problem.shape.shortens(size, each))
        if together:
            yield Variable("axes", name, (), (None, *together))
            yield Variable("ring", name, (), (None, *axes))
        counts = tuple(count for count in CHUNKS if size % count == 0)
        others = between(size)
        if counts or others:
            # One number has to be tried from wherever a search is.
            finer = others[not counts :]
            yield Variable("chunks", name, (), (None, *(counts or others[:1]), *finer), len(finer))
        if together and name in iterated:
            yield Variable("halo", name, (), (None, *DEPTHS))
        if together and name in striped:
            yield Variable("stripes", name, (), (None, True))


def _of_turns(problem: Problem) -> Iterator[Variable]:
    """Mesh axes for layers: stages of a pipeline."""
    known, fixed = cuttable(problem.graph), {name for name, _ in problem.fixed.entries}
    lengths = {loop.over: loop.length for _, loop in walk.loops(problem.graph) if loop.over is not None}
    for name, length in lengths.items():
        stages = [
            each for each in subsets(problem.shape.real(problem.shape.names)) if problem.shape.size(each) <= length
        ]
        if name not in known and name not in fixed and stages:
            yield Variable("axes", name, (), (None, *stages))


def _of_storage(problem: Problem) -> Iterator[Variable]:
    """Mesh axes over which parameters are stored where the plan does not cut them."""
    together = subsets(problem.shape.real(problem.shape.names))
    if together:
        yield Variable("stored", "", (), (None, *together))


def _of_remat(problem: Problem) -> Iterator[Variable]:
    """Which layers the backward pass computes again: those of a loop, or of one scope."""
    if problem.grad is False or not problem.remat or problem.fixed.remat:
        return
    for scope in recomputable(problem.graph):
        yield Variable("remat", scope, (), (None, True, "dots", "dots_with_no_batch_dims"))


def _of_classes(problem: Problem) -> Iterator[Variable]:
    """Exceptions: dimensions of operations that are placed otherwise than their names say, equal operations alike."""
    together = subsets(problem.shape.real(problem.shape.names))
    for names, paths in classes(problem.graph).values():
        for name in names if together else ():
            if not _is_fixed(problem, name, paths):
                yield Variable("except", name, paths, (None, (), *together))


def _is_fixed(problem: Problem, name: str, paths: tuple[str, ...]) -> bool:
    """Whether the user said of a dimension where it goes, there or everywhere."""
    inside = (entries for scope, entries in problem.fixed.ops if any(_is_below(path, scope) for path in paths))
    return any(name == given for entries in (problem.fixed.entries, *inside) for given, _ in entries)


def _is_below(path: str, scope: str) -> bool:
    return path == scope or path.startswith(f"{scope}/")


def cuttable(graph: Graph) -> dict[str, int]:
    """The names of dimensions that some operation can cut, and the largest size that they have, in order."""
    found: dict[str, int] = {}
    for place, node in walk.operations(graph):
        shaped = place.graph.shaped(place.index)
        for dim, name in node.names:
            if why_whole(shaped, dim) is None:
                found[name] = max(found.get(name, 1), shaped.sizes[dim])
    return found


def between(size: int) -> tuple[int, ...]:
    """Other numbers of chunks of a dimension, which refine a number that was chosen: powers of two, and halfway.

    They need not divide it, as long as the last chunk is nearly full.
    """
    counts = (count for power in range(1, _POWERS) for count in (2**power, 3 * 2 ** (power - 1)))
    return tuple(count for count in counts if count not in CHUNKS and _wasted(size, count) <= _WASTE * size)


def _wasted(size: int, count: int) -> int:
    """Cells of no meaning behind the last one; all of them where some chunks would be empty."""
    filled = -(-size // count) * count
    return filled - size if filled - size < filled // count else size


def classes(graph: Graph) -> dict[Any, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Operations that are the same but for numbers in their paths: their dimensions that can be cut, their paths."""
    found: dict[Any, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for place, node in walk.operations(graph):
        shaped = place.graph.shaped(place.index)
        names = tuple(name for dim, name in node.names if why_whole(shaped, dim) is None and shaped.sizes[dim] > 1)
        types = tuple(place.graph.type_of(ref) for ref in node.operands)
        key = re.sub(r"\d+", "0", place.path), node.operation, node.names, types
        found[key] = names, (*found.get(key, ((), ()))[1], place.path)
    return found


def subsets(axes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every choice of some of the axes, in their order."""
    return [each for count in range(1, len(axes) + 1) for each in itertools.combinations(axes, count)]


def _meetings(graph: Graph) -> frozenset[frozenset[str]]:
    """Pairs of names that one operation can cut both."""
    found = (names for names, _ in classes(graph).values())
    return frozenset(frozenset(pair) for names in found for pair in itertools.combinations(dict.fromkeys(names), 2))


def _windows(graph: Graph) -> set[str]:
    """The names along which operations read neighbours."""
    return {
        node.bound[term.name]
        for _, node in walk.operations(graph)
        for operand in node.operation.signature.operands
        for axis in operand.axes
        if axis.is_window
        for term in axis.terms
        if term.name in node.bound
    }


def _read_by_coordinate(graph: Graph) -> set[str]:
    """The names whose coordinates operations read: where work depends on where a cell is, stripes balance it."""
    return {
        node.bound[operand.coordinate]
        for _, node in walk.operations(graph)
        for operand in node.operation.signature.operands
        if operand.coordinate is not None and operand.coordinate in node.bound
    }
