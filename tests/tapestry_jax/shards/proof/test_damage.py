"""Damage planted into sharded graphs, kind by kind: each is refused, with the operation and what differs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.shards.parts import Block, Merge, Move, Next, Piece, Present, Program, Read, Repeat, Take
from tapestry_jax.shards.ranges import Range
from tapestry_jax.shards.sharded_graph import ShardedGraph
from tests.tapestry_jax.shards.examples import PLANS, matmul, plan_of, shards_of

Damage = Callable[[ShardedGraph], ShardedGraph]


def with_program(shards: ShardedGraph, **changes: Any) -> ShardedGraph:
    return replace(shards, program=replace(shards.program, **changes))


def changed(kind: type, change: Callable[[Any, Program], Any], number: int = 0, inside: bool = False) -> Damage:
    """Change the step of a kind that comes `number`-th, in the program or in the body of its first loop."""

    def damage(shards: ShardedGraph) -> ShardedGraph:
        def of(program: Program) -> Program:
            places = [place for place, step in enumerate(program.steps) if isinstance(step, kind)]
            steps = list(program.steps)
            steps[places[number]] = change(steps[places[number]], program)
            return replace(program, steps=tuple(step for step in steps if step is not None))

        if not inside:
            return replace(shards, program=of(shards.program))
        return changed(Repeat, lambda loop, _: replace(loop, body=of(loop.body)))(shards)

    return damage


def piece_of(kind: type, change: Callable[[Piece], Piece], number: int = 0, inside: bool = False) -> Damage:
    """Change the piece that a step of a kind makes."""

    def damage(shards: ShardedGraph) -> ShardedGraph:
        def of(program: Program) -> Program:
            step: Any = [step for step in program.steps if isinstance(step, kind)][number]
            place = step.results[0] if isinstance(step, Block | Merge | Present | Repeat) else step.result
            pieces = list(program.pieces)
            pieces[place] = change(pieces[place])
            return replace(program, pieces=tuple(pieces))

        if not inside:
            return replace(shards, program=of(shards.program))
        return changed(Repeat, lambda loop, _: replace(loop, body=of(loop.body)))(shards)

    return damage


def index_box(dim: str, **changes: Any) -> Callable[[Block, Program], Block]:
    def change(step: Block, _: Program) -> Block:
        called = dict(step.names)
        box = tuple((name, replace(own, **changes) if called.get(name, name) == dim else own) for name, own in step.box)
        assert box != step.box
        return replace(step, box=box)

    return change


def read(number: int, axis: int, **changes: Any) -> Callable[[Block, Program], Block]:
    def change(step: Block, _: Program) -> Block:
        reads = list(step.reads)
        box = list(reads[number].box)
        box[axis] = replace(box[axis], **changes)
        reads[number] = replace(reads[number], box=tuple(box))
        return replace(step, reads=tuple(reads))

    return change


def box(axis: int, **changes: Any) -> Callable[[Piece], Piece]:
    def change(piece: Piece) -> Piece:
        ranges = list(piece.box)
        ranges[axis] = replace(ranges[axis], **changes)
        return replace(piece, box=tuple(ranges))

    return change


def swapped_reads(step: Block, _: Program) -> Block:
    return replace(step, reads=step.reads[::-1])


def reordered(shards: ShardedGraph) -> ShardedGraph:
    return with_program(shards, steps=shards.program.steps[::-1])


def in_a_circle(shards: ShardedGraph) -> ShardedGraph:
    """The first block reads what the last one makes."""
    blocks = [step for step in shards.program.steps if isinstance(step, Block)]
    last = shards.program.outputs[0][1]
    return (
        changed(Block, lambda step, _: replace(step, reads=(replace(step.reads[0], piece=last), *step.reads[1:])))(
            shards
        )
        if blocks
        else shards
    )


def dtype(shards: ShardedGraph) -> ShardedGraph:
    values = list(shards.program.values)
    values[-1 - sum(value.state for value in values)] = replace(
        values[-1 - sum(value.state for value in values)], type=tp.TensorType({"batch": 8, "embed": 4}, jnp.float16)
    )
    return with_program(shards, values=tuple(values))


def coordinate(name: str, **changes: Any) -> Damage:
    def damage(shards: ShardedGraph) -> ShardedGraph:
        kept = tuple(replace(each, **changes) if each.name == name else each for each in shards.shared.coordinates)
        assert kept != shards.shared.coordinates
        return replace(shards, shared=replace(shards.shared, coordinates=kept))

    return damage


def other_kernel(shards: ShardedGraph) -> ShardedGraph:
    operations = list(shards.shared.operations)
    operations[0] = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Max).operation
    return replace(shards, shared=replace(shards.shared, operations=tuple(operations)))


def arguments_swapped(shards: ShardedGraph) -> ShardedGraph:
    """Two arguments of one type change places; nothing else does."""
    first, second = [number for number, step in enumerate(shards.program.steps) if isinstance(step, Take)][:2]
    steps = list(shards.program.steps)
    steps[first], steps[second] = steps[second], steps[first]
    return with_program(shards, steps=tuple(steps))


def in_trees(**changes: Any) -> Damage:
    """Arguments, or results, in another structure."""
    trees = {name: jax.tree.structure(like) for name, like in changes.items()}
    return lambda shards: with_program(shards, **trees)


def counted_down(name: str) -> Damage:
    """Blocks lie on devices, or in turns, in the other order: wherever a coordinate moves anything."""

    def turned(part: Any, counts: dict[str, int]) -> Any:
        if isinstance(part, Range):
            steps = tuple((each, -step if each == name else step) for each, step in part.steps)
            return replace(part, low=part.low + dict(part.steps).get(name, 0) * (counts[name] - 1), steps=steps)
        if isinstance(part, tuple):
            return tuple(turned(each, counts) for each in cast("tuple[Any, ...]", part))
        if isinstance(part, Block | Piece | Read):
            return replace(
                part, **{each: turned(getattr(part, each), counts) for each in ("box", "reads") if hasattr(part, each)}
            )
        return part

    def damage(shards: ShardedGraph) -> ShardedGraph:
        program, counts = shards.program, shards.shared.counts
        return with_program(shards, pieces=turned(program.pieces, counts), steps=turned(program.steps, counts))

    return damage


def runs_another(step: Block, _: Program) -> Block:
    return replace(step, runs=1 if step.runs == 0 else 0)


DAMAGE: list[tuple[str, str, Damage, str]] = [
    # The index box.
    ("a gap", "megatron", changed(Block, index_box("batch", count=3)), r"exactly along `i`.*no block holds \[3:4\]"),
    (
        "an overlap",
        "megatron",
        changed(Block, index_box("batch", count=5)),
        r"exactly along `i`.*\[4:5\] is held twice",
    ),
    ("an offset", "megatron", changed(Block, index_box("batch", low=1)), r"no block holds \[0:1\]"),
    (
        "blocks in another step",
        "megatron",
        changed(Block, index_box("mlp", steps=(("model", 4),))),
        r"no block holds \[3:4\]",
    ),
    (
        "indices beyond the end",
        "megatron",
        changed(Block, index_box("batch", limit=(0, 9))),
        r"its indices are \[0:9\]",
    ),
    (
        "one axis for two dimensions",
        "megatron",
        changed(Block, index_box("mlp", steps=(("data", 3),), count=6)),
        "does not cover",
    ),
    ("a dimension left out", "megatron", changed(Block, lambda s, _: replace(s, box=s.box[1:])), "of other dimensions"),
    (
        "a whole dimension cut",
        "halo",
        changed(Block, index_box("dy", count=1, steps=(("data", 1),)), inside=True),
        "does not cover|as a whole",
    ),
    (
        "a device that is not there",
        "megatron",
        changed(Block, index_box("batch", steps=(("nowhere", 4),))),
        "neither a mesh axis nor",
    ),
    # What is read.
    ("another box read", "megatron", changed(Block, read(0, 0, low=1)), r"projects to \[0:4\], the box says \[1:5\]"),
    (
        "a smaller box read",
        "megatron",
        changed(Block, read(1, 1, count=2)),
        r"projects to \[0:3\], the box says \[0:2\]",
    ),
    (
        "a window off by one",
        "halo",
        changed(Block, read(0, 0, offset=0), inside=True),
        "than its index box projects to",
    ),
    ("another boundary", "halo", changed(Block, read(0, 0, mode="edge"), inside=True), "answered by 'edge' outside"),
    ("operands swapped", "megatron", changed(Block, swapped_reads), "does not take|projects to|other types"),
    (
        "an operand left out",
        "megatron",
        changed(Block, lambda s, _: replace(s, reads=s.reads[:1])),
        "does not take|takes 2 operand",
    ),
    ("read before it is made", "megatron", reordered, "before anything has made it"),
    ("a circle", "megatron", in_a_circle, "before anything has made it, or in a circle"),
    (
        "read outside of its loop",
        "chunks",
        changed(Block, lambda s, _: replace(s, loops=()), 1),
        "outside of that loop|outside of the loop",
    ),
    ("a piece of a state read as a result", "megatron", changed(Merge, lambda *_: None), "before anything has made it"),
    # What is made.
    (
        "another box made",
        "megatron",
        piece_of(Block, box(0, low=1)),
        "than its index box projects to|out of bounds|to write",
    ),
    (
        "a piece made twice",
        "megatron",
        changed(Block, lambda s, p: replace(s, results=(p.steps[0].result,))),
        "a second time",
    ),
    (
        "computed twice",
        "megatron",
        lambda s: with_program(s, steps=(*s.program.steps, next(x for x in s.program.steps if isinstance(x, Block)))),
        "is computed twice",
    ),
    ("out of bounds", "megatron", piece_of(Take, box(0, limit=(0, 9), count=9)), "out of bounds along axis 0"),
    ("another dtype", "megatron", dtype, "other types than its operation gives"),
    (
        "an argument held in part",
        "megatron",
        piece_of(Take, box(0, steps=(("data", 1),), count=1)),
        r"is not held whole.*nobody holds \[2:8\]",
    ),
    ("an output held in part", "megatron", lambda s: with_program(s, outputs=()), "blocks of another program"),
    ("arguments swapped", "scan", arguments_swapped, "is taken out of its order"),
    ("arguments by name", "scan", in_trees(in_tree=({"b": 0, "a": 0},)), "arguments in another structure"),
    ("results by name", "megatron", in_trees(out_tree={"y": 0}), "results in another structure"),
    ("a name of another value", "megatron", lambda s: with_program(s, named=(("y", 0),)), "`y` names another value"),
    # Folds.
    ("merged along too few", "scattered", changed(Merge, lambda s, _: replace(s, over=())), "along \\(\\)"),
    (
        "merged along too many",
        "megatron",
        changed(Merge, lambda s, _: replace(s, over=(*s.over, "data"))),
        "copies of one, or merged already",
    ),
    ("merged twice", "megatron", changed(Merge, lambda s, _: replace(s, over=s.over * 2)), "merges 1 leaves"),
    (
        "presented in pieces",
        "megatron",
        changed(Present, lambda s, p: replace(s, sources=next(x for x in p.steps if isinstance(x, Merge)).sources)),
        "still in pieces along",
    ),
    (
        "a state in other pieces",
        "megatron",
        piece_of(Block, lambda p: replace(p, partial=()), 2),
        "in other pieces than it says",
    ),
    (
        "folded twice",
        "megatron",
        changed(Block, index_box("mlp", before=1), 2),
        "folds indices of `k` twice|projects to",
    ),
    # Scans.
    (
        "a scan in another order",
        "scan",
        changed(Block, lambda s, _: replace(s, chain=s.chain[::-1])),
        "in another order than its scan",
    ),
    (
        "a scan that begins anew",
        "scan",
        changed(Block, lambda s, _: replace(s, chain=())),
        "in another order than its scan",
    ),
    (
        "a scan over devices in the other order",
        "scan",
        counted_down("data"),
        r"out of their order.*on data=2.*comes behind",
    ),
    ("a scan over turns in the other order", "scan", counted_down("@t:2"), r"out of their order.*comes behind"),
    (
        "an ordered fold over devices in the other order",
        "ordered",
        counted_down("data"),
        r"out of their order, which its monoid needs.*on data=1.*\[0:3\] comes behind \[9:12\]",
    ),
    # What moves.
    (
        "moved along too few",
        "fsdp",
        changed(Move, lambda s, _: replace(s, over=()), inside=True),
        "moves cells that are not there|along",
    ),
    (
        "moved from another tensor",
        "ring",
        changed(Move, lambda s, p: replace(s, source=p.steps[0].result)),
        "to one of something else",
    ),
    ("a ring a turn short", "ring", coordinate("@keys:4~data", count=3), "goes round 4 devices in 3 turns"),
    ("a ring along nothing", "ring", coordinate("@keys:4~data", along=()), "is a coordinate of kind 'ring'"),
    (
        "halos that nobody sends",
        "halo",
        changed(Move, lambda s, _: replace(s, over=()), inside=True),
        r"\[2[0-9]*:.*not there|not there",
    ),
    ("a rim too thin", "deep", piece_of(Move, box(0, before=0), inside=True), "that it does not hold"),
    # Loops.
    ("a turn left out", "deep", changed(Repeat, lambda s, _: replace(s, turns=1)), "no such loop"),
    (
        "the remainder left out",
        "deep",
        lambda s: with_program(s, steps=s.program.steps[:-1]),
        "before anything|no step makes",
    ),
    (
        "an iteration left out",
        "deep",
        changed(Repeat, lambda s, _: replace(s, depth=3)),
        "begins with another|is not computed in|not complete",
    ),
    (
        "an iteration that skips one",
        "deep",
        changed(Next, lambda s, p: replace(s, source=p.steps[0].result), inside=True),
        "does not hand on",
    ),
    ("another carry box", "pipeline", piece_of(Take, box(1, count=2), inside=True), "another box|does not hold"),
    ("stages elsewhere", "pipeline", coordinate("@batch:4", kind="turns", along=()), "in a pipeline along"),
    (
        "layers of two stages",
        "pipeline",
        changed(Repeat, lambda s, _: replace(s, stage=replace(s.stage, low=1))),
        "does not give every iteration",
    ),
    (
        "taken in at the last stage",
        "pipeline",
        piece_of(Move, lambda p: replace(p, only=(("stage", 1),))),
        "where it is not",
    ),
    # What runs.
    ("another operation", "megatron", other_kernel, "applies an operation that the program does not have"),
    ("another operation runs", "megatron", changed(Block, runs_another), "runs another operation|does not take"),
    (
        "dimensions bound otherwise",
        "megatron",
        changed(Block, lambda s, _: replace(s, names=(("i", "embed"), *s.names[1:]))),
        "binds its dimensions to other names",
    ),
]


HUGE = 2**70


def exchanged(first: int, second: int) -> Damage:
    """Two pieces change places in the table; the steps still make and read the same numbers."""

    def damage(shards: ShardedGraph) -> ShardedGraph:
        pieces = list(shards.program.pieces)
        pieces[first], pieces[second] = pieces[second], pieces[first]
        return with_program(shards, pieces=tuple(pieces))

    return damage


def twice(kind: type) -> Damage:
    """The first step of a kind stands there twice."""

    def damage(shards: ShardedGraph) -> ShardedGraph:
        steps = list(shards.program.steps)
        place = next(place for place, step in enumerate(steps) if isinstance(step, kind))
        return with_program(shards, steps=(*steps[:place], steps[place], *steps[place:]))

    return damage


def crossed(kind: type, to: str, of: str) -> Damage:
    """The first two steps of a kind, each with something of the other one."""

    def damage(shards: ShardedGraph) -> ShardedGraph:
        steps: list[Any] = list(shards.program.steps)
        first, second = [place for place, step in enumerate(steps) if isinstance(step, kind)][:2]
        one, other = steps[first], steps[second]
        steps[first], steps[second] = replace(one, **{to: getattr(other, of)}), replace(other, **{to: getattr(one, of)})
        return with_program(shards, steps=tuple(steps))

    return damage


def output(piece: int) -> Damage:
    return lambda shards: with_program(shards, outputs=((shards.program.outputs[0][0], piece),))


def dtype_of(number: int, dtype: Any) -> Damage:
    def damage(shards: ShardedGraph) -> ShardedGraph:
        values = list(shards.program.values)
        kind = values[number].type
        sizes = list(zip(kind.names, kind.shape, strict=True))
        values[number] = replace(values[number], type=tp.TensorType(sizes, dtype))
        return with_program(shards, values=tuple(values))

    return damage


def reading(piece: int) -> Damage:
    return changed(Block, lambda s, _: replace(s, reads=(replace(s.reads[0], piece=piece), *s.reads[1:])))


DAMAGE += [
    ("two arguments' boxes exchanged", "megatron", exchanged(0, 1), "taken out of its order"),
    ("two results' boxes exchanged", "uneven", exchanged(3, 6), "to one of something else"),
    ("a device outside of the mesh", "pipeline", piece_of(Move, lambda p: replace(p, only=(("stage", 7),))), "not"),
    ("a device before the first", "pipeline", piece_of(Move, lambda p: replace(p, only=(("stage", -1),))), "not"),
    ("made on one device", "megatron", piece_of(Block, lambda p: replace(p, only=(("data", 0),))), "elsewhere than"),
    (
        "merged over devices before turns",
        "ordered",
        crossed(Merge, "over", "over"),
        "another order than their monoid needs",
    ),
    ("turns outside of devices", "ordered", piece_of(Block, lambda p: replace(p, partial=p.partial[::-1])), "in other"),
    (
        "a partial state twice",
        "ordered",
        piece_of(Block, lambda p: replace(p, partial=p.partial * 2)),
        "in other pieces",
    ),
    (
        "a leaf merged twice",
        "ordered",
        changed(Merge, lambda m, _: replace(m, sources=m.sources[:1] * 2)),
        "other leaves",
    ),
    ("a merge as two steps", "megatron", twice(Merge), "a second time"),
    ("a result presented twice", "megatron", twice(Present), "a second time"),
    ("a transfer to oneself", "uneven", changed(Move, lambda m, _: replace(m, source=m.result)), "in a circle"),
    ("two transfers in a circle", "uneven", crossed(Move, "source", "result"), "in a circle"),
    ("another piece observed", "megatron", output(0), "is left out"),
    ("a piece observed that there is not", "megatron", output(-1), "which there is not"),
    ("a huge number of a piece", "megatron", reading(HUGE), "which there is not"),
    ("a negative number of a piece", "megatron", reading(-1), "which there is not"),
    ("a box that begins before 0", "megatron", changed(Block, index_box("batch", low=-1)), "no block holds"),
    ("a box of fewer than no cells", "megatron", changed(Block, index_box("batch", count=-4)), "no block holds"),
    ("a limit before 0", "megatron", changed(Block, index_box("batch", limit=(-1, 8))), r"its indices are \[-1:8\]"),
    ("a huge box", "megatron", changed(Block, index_box("batch", count=HUGE)), "is held twice"),
    ("a huge limit", "megatron", changed(Block, index_box("batch", limit=(0, HUGE))), "its indices are"),
    ("a huge step", "megatron", changed(Block, index_box("batch", steps=(("data", HUGE),))), "no block holds"),
    ("a huge window", "halo", changed(Block, read(0, 0, width=HUGE), inside=True), "another box of operand 0"),
    ("a huge mesh", "megatron", coordinate("data", count=HUGE), "too many to be counted"),
    ("a huge loop", "chunks", coordinate("@batch:2", count=HUGE), "too many to be counted"),
    ("a mesh of no devices", "megatron", coordinate("data", count=0), "or of no size"),
    (
        "a halo a cell to the left",
        "halo",
        changed(Block, read(0, 0, offset=-2), inside=True),
        "another box of operand 0",
    ),
    ("a halo a cell short", "halo", changed(Block, read(0, 0, width=2), inside=True), "another box of operand 0"),
    (
        "ranges that overlap along another axis",
        "megatron",
        changed(Block, index_box("batch", steps=(("data", 4), ("model", 1)))),
        "held twice",
    ),
    ("an argument of another dtype", "megatron", dtype_of(0, jnp.float16), "has another type"),
    ("a state of another dtype", "ordered", dtype_of(-1, jnp.float64), "a leaf of its state as something else"),
    ("a chain twice", "scan", changed(Block, lambda s, _: replace(s, chain=(*s.chain, s.chain[0]))), "another order"),
    ("fewer than no turns", "deep", changed(Repeat, lambda s, _: replace(s, turns=-1)), "no such loop"),
    ("slices along another axis", "fsdp", changed(Repeat, lambda s, _: replace(s, axes=(1, 1))), "slices of operand"),
    ("an index that is no number", "megatron", changed(Block, index_box("batch", low=float("nan"))), "no block holds"),
    ("an index that is text", "megatron", changed(Block, index_box("batch", count="4")), "parts that do not fit"),
]


@pytest.mark.parametrize(("plan", "damage", "told"), [each[1:] for each in DAMAGE], ids=[each[0] for each in DAMAGE])
def test_damage_is_refused(plan: str, damage: Damage, told: str) -> None:
    damaged = damage(shards_of(plan))
    assert damaged != shards_of(plan)
    with pytest.raises(tp.PlanError) as found:
        damaged.verify(plan_of(plan).graph)
    text = str(found.value)
    assert re.search(told, text, re.DOTALL), text
    assert "`" in text and len(text.splitlines()) >= 2


def test_structures_have_a_place_for_all_arguments_and_results() -> None:
    """Without a graph to compare them with, too."""
    more = in_trees(in_tree=(0, 0, 0))(shards_of("scan")), in_trees(out_tree=(0, 0))(shards_of("scan"))
    for damaged, told in zip(more, ("other arguments than", "other results than"), strict=True):
        with pytest.raises(tp.PlanError, match=told):
            damaged.verify()


def test_every_plan_is_damaged_somewhere() -> None:
    assert {each[1] for each in DAMAGE} <= set(PLANS)
    assert Range(0, 1).is_plain


def refused(plan: tp.Plan, damage: Damage, told: str) -> None:
    plan.shards().verify(plan.graph)
    with pytest.raises(tp.PlanError, match=told):
        damage(plan.shards()).verify(plan.graph)


def test_a_device_without_an_index_makes_nothing() -> None:
    """Three cells on eight devices: the last ones may not say that they hold copies of the first."""
    graph = tp.trace(tp.Map(jnp.negative), tp.TensorType({"a": 3}))
    plan = tp.plan(graph, tp.mesh(data=2, model=4), {"a": ("data", "model")})
    copies = piece_of(Block, lambda p: replace(p, box=(replace(p.box[0], steps=(("model", 1),)),)))
    refused(plan, copies, "without an index nothing is made")


def test_what_a_fold_of_nothing_gives_is_covered() -> None:
    graph = tp.trace(matmul, tp.TensorType({"i": 4, "k": 0}), tp.TensorType({"k": 0, "n": 2}))
    plan = tp.plan(graph, tp.mesh(data=2), {"i": "data"})
    refused(plan, changed(Block, index_box("i", limit=(0, 0))), "does not cover its index space exactly along `i`")


def test_a_loop_goes_on_with_what_the_iterations_before_it_carry() -> None:
    """Five iterations, two a turn: the last one is a loop of its own, which could begin with the argument again."""
    again = changed(Repeat, lambda s, _: replace(s, operands=(0,)), number=1)
    refused(plan_of("deep"), again, "goes on with something else than the iterations before it carry")


def test_dealt_cells_have_no_window() -> None:
    windows = piece_of(Take, lambda p: replace(p, box=(replace(p.box[0], deal=6, width=2), *p.box[1:])))
    refused(plan_of("megatron"), windows, "windows of cells that have been dealt")
