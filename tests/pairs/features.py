"""What a drawn pair has in it, by name; and which of these names have met in one pair."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from combinators.index_space.boundary import BOUNDARIES
from tapestry_jax.shards.parts import Block, Merge, Move, Piece, Present, Program, Repeat, Shared
from tapestry_jax.shards.ranges import points
from tapestry_jax.shards.sharded_graph import ShardedGraph
from tests.pairs.plans import Placing

MESHES = ("three devices", "five devices", "eight devices", "an axis of one device", "three axes")
SIZES = ("size 0", "size 1", "a prime size", "smaller than its axis", "a size that does not divide")
CUTS = ("blocks over a tuple", "stripes", "chunks", "chunks of one cell", "nested loops", "a ring", "a deep halo")
BESIDE = ("a pipeline", "stored over another axis", "a layout of an argument", "a layout of a result")
STORED = ("a tuple in a layout", "padded storage", "an exception by path", "wider carriers")
MOVES = ("all-gather", "all-to-all", "neighbours", "scattered", "a window with a rim")
FOLDS = ("merged over the mesh", "merged in turns", "merged by a frame", "merged in order", "a scan cut")
PROGRAMS = (
    "iterate",
    "stack",
    "a loop in a loop",
    "by key",
    "a gather",
    "random numbers",
    "coordinates",
    "two outputs",
)
BOUNDARY = tuple(f"boundary {mode}" for mode in BOUNDARIES)

FEATURES = (*MESHES, *SIZES, *CUTS, *BESIDE, *STORED, *MOVES, *FOLDS, *PROGRAMS, *BOUNDARY)
"""All that are counted."""
STEPS_SEEN = {"by key": "by key", "gather": "a gather", "random": "random numbers"}
_PRIMES = (2, 3, 5, 7, 11)
_MOST = 512
"""Places of one axis that are looked at."""


def features(placing: Placing, graph: Graph, taken: Iterable[str], shards: ShardedGraph) -> frozenset[str]:
    """The names of what an accepted plan of a program has in it; a plan's items count where they cut something."""
    shared, programs = shards.shared, [*_programs(shards.program)]
    found = {*_of_mesh(placing), *_of_placing(placing), *_of_graph(graph, 0), *_of_coordinates(shared)}
    found |= {name for program in programs for name in _of_program(shared, program)}
    found |= {STEPS_SEEN[name] for name in taken if name in STEPS_SEEN}
    if len(graph.outputs) > 1:
        found.add("two outputs")
    return frozenset(found) & frozenset(FEATURES)


def pairs_of(found: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every two of some features, in the order of `FEATURES`."""
    return itertools.combinations(sorted(found, key=FEATURES.index), 2)


def lacking(met: Mapping[tuple[str, str], int], alone: Mapping[str, int]) -> list[str]:
    """What has not been drawn: features, and pairs of such as were drawn alone."""
    missing = [name for name in FEATURES if not alone.get(name)]
    pairs = (pair for pair in pairs_of(FEATURES) if not met.get(pair) and not {*pair} & {*missing})
    return [*missing, *(f"{first} and {second}" for first, second in pairs)]


def count(found: Iterable[str], alone: Counter[str], met: Counter[tuple[str, str]]) -> None:
    """Add one pair to the counts."""
    found = tuple(found)
    alone.update(found)
    met.update(pairs_of(found))


def _of_mesh(placing: Placing) -> Iterator[str]:
    sizes = placing.mesh.values()
    known = {3: "three devices", 5: "five devices", 8: "eight devices", 1: "an axis of one device"}
    yield from (known[size] for size in sizes if size in known)
    if len(placing.mesh) > 2:
        yield "three axes"


def _of_placing(placing: Placing) -> Iterator[str]:
    if placing.fsdp:
        yield "stored over another axis"
    if placing.ops:
        yield "an exception by path"
    if placing.accumulate:
        yield "wider carriers"
    for name, given in (("a layout of an argument", placing.inputs), ("a layout of a result", placing.outputs)):
        stored = [item for layout in given.values() for item in layout.values()]
        if stored:
            yield name
        axes = [getattr(item, "axes", item if isinstance(item, tuple) else ()) for item in stored]
        if any(len(each) > 1 for each in axes):
            yield "a tuple in a layout"
        if any(not isinstance(item, str | tuple) for item in stored):
            yield "padded storage"


def _of_graph(graph: Graph, depth: int) -> Iterator[str]:
    for node in graph.nodes:
        if isinstance(node, Loop):
            yield "stack" if getattr(node, "over", None) else "iterate"
            if depth:
                yield "a loop in a loop"
            yield from _of_graph(node.body, depth + 1)
        elif isinstance(node, Apply):
            shaped = graph.shaped(graph.nodes.index(node))
            operands = shaped.signature.operands
            if any(operand.coordinate is not None for operand in operands):
                yield "coordinates"
            modes = shaped.operation.boundary
            windows = any(axis.is_window for operand in operands for axis in operand.axes)
            listed = (modes,) if isinstance(modes, str) else tuple(modes)
            yield from (f"boundary {mode}" for mode in listed if windows)
            sizes = set(shaped.sizes.values())
            yield from (
                name for name, some in (("size 0", {0}), ("size 1", {1}), ("a prime size", _PRIMES)) if sizes & {*some}
            )


def _of_coordinates(shared: Shared) -> Iterator[str]:
    kinds = {each.kind for each in shared.coordinates if each.count > 1}
    named = {"turns": "chunks", "ring": "a ring", "pipeline": "a pipeline"}
    yield from (name for kind, name in named.items() if kind in kinds)


def _of_program(shared: Shared, program: Program) -> Iterator[str]:
    kinds = shared.kinds
    for step in program.steps:
        match step:
            case Block(chain=chain, box=box):
                yield from (name for _, own in box for name in _of_range(shared, own))
                if len([loop for loop in step.loops if not loop.startswith("%") and kinds[loop].count > 1]) > 1:
                    yield "nested loops"
                if any(kinds[name].count > 1 for name in chain):
                    yield "a scan cut"
            case Move(how=how):
                yield from (name for name in ("all-gather", "all-to-all", "neighbours") if name in how)
                yield from _of_rim(program.pieces[step.result])
            case Merge(over=over, how=how):
                # In turns, over the mesh, or both in one.
                if any(kinds[name].count > 1 and kinds[name].kind == "axis" for name in over):
                    yield "merged over the mesh"
                    yield from (f"merged {name}" for name in ("by a frame", "in order") if name.split()[-1] in how)
                if any(kinds[name].count > 1 and kinds[name].kind != "axis" for name in over):
                    yield "merged in turns"
            case Present(sources=sources, results=results):
                before, after = ({*_moved(program.pieces[number])} for number in (sources[0], results[0]))
                if {name for name in after - before if kinds[name].kind == "axis"}:
                    yield "scattered"
            case Repeat(depth=depth) if depth > 1:
                yield "a deep halo"
            case _:
                pass


def _moved(piece: Piece) -> Iterator[str]:
    yield from (name for own in piece.box for name in own.coordinates)


def _of_rim(piece: Piece) -> Iterator[str]:
    if any(own.before or own.after for own in piece.box):
        yield "a window with a rim"


def _of_range(shared: Shared, own: Any) -> Iterator[str]:
    kinds, counts = shared.kinds, shared.counts
    mesh = [name for name in own.coordinates if kinds[name].kind == "axis" and counts[name] > 1]
    loops = [name for name in own.coordinates if kinds[name].kind == "turns" and counts[name] > 1]
    if len(mesh) > 1:
        yield "blocks over a tuple"
    if own.deal:
        yield "stripes"
    if loops and own.count == 1:
        yield "chunks of one cell"
    size = own.limit[1] - own.limit[0]
    if mesh and 0 < size < max(counts[name] for name in mesh):
        yield "smaller than its axis"
    listed = [own.owned(point) for point, _ in zip(points(counts, own.coordinates), range(_MOST), strict=False)]
    if len({high - low for low, high in listed}) > 1:
        yield "a size that does not divide"


def _programs(program: Program) -> Iterator[Program]:
    yield program
    for step in program.steps:
        if isinstance(step, Repeat):
            yield from _programs(step.body)
