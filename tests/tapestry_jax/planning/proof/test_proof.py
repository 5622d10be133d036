"""The proof that a schedule computes its program: it holds for plans, and names what is wrong with damaged ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.index_space.boundary import BOUNDARIES
from tapestry_jax import by_hand
from tapestry_jax.planning.entries import placement
from tapestry_jax.planning.geometry.changes import Cast, Gather, Overlap, Share, Slice
from tapestry_jax.planning.geometry.fewer import fewer
from tapestry_jax.planning.geometry.halo import Hop, NeighbourExchange
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.proof import changed
from tapestry_jax.planning.proof.prove import prove, prove_boundary
from tapestry_jax.planning.proof.site import Site
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule
from tests.pairs.damaging import replaced
from tests.tapestry_jax.damage import cut_of, damaged, recut, renamed, with_layout

MESH = AbstractMesh((2, 4), ("data", "model"))
matmul = tp.einsum("i k, k n -> i n")
running = tp.Scan(tp.monoids.Sum, "t c -> t c", over="t")
ORDERED = tp.Monoid(0.0, lambda a, b: 0.5 * a + b)


def typed(dtype: Any = jnp.float32, **sizes: int) -> tp.TensorType:
    return tp.TensorType(sizes, dtype)


def mean(rows: Any) -> Any:
    return (rows[:-2] + rows[1:-1] + rows[2:]) / 3


def last(block: Any) -> Any:
    return block[-1]


def pair(a: Any, b: Any) -> Any:
    return a, b


def second(state: Any) -> Any:
    return state[1]


def attend(q: Any, k: Any, v: Any) -> Any:
    return tp.attention(q, k, v, over="keys", causal=True)


blur = tp.Map(mean, "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary="periodic")
decayed = tp.Reduce(last, "t -> ", ORDERED)
affine = tp.Scan(tp.monoids.AffineRecurrence, "r p, r p -> r p", over="r", kernel=pair, present=second)
largest = tp.Scan(tp.monoids.Max, "r p -> r p", over="r", reverse=True)


def layer(x: Any, w: Any) -> Any:
    return tp.Map(jnp.tanh)(matmul(x, w)).rename(n="k")


def shifted(x: Any, w: Any, b: Any) -> Any:
    return tp.Map(jnp.add, "i n, n -> i n")(matmul(x, w), b).rename(n="k")


def planned(program: Any, types: Any, entries: Any, mesh: Any = MESH, **options: Any) -> Schedule:
    found = tp.plan(tp.trace(program, *types), mesh, entries, **options)
    found.verify()
    return found.schedule


def product(**entries: Any) -> Schedule:
    return planned(lambda x, w: matmul(x, w), (typed(i=16, k=32), typed(k=32, n=8)), entries)


def scanned(**entries: Any) -> Schedule:
    return planned(lambda x: running(x), (typed(t=32, c=8),), entries)


def attention(**entries: Any) -> Schedule:
    types = typed(heads=2, queries=16, d=4), typed(heads=2, keys=16, d=4), typed(heads=2, keys=16, e=4)
    return planned(attend, types, entries)


def stacked(**entries: Any) -> Schedule:
    return planned(lambda x, w: tp.stack(layer, 8)(x, w), (typed(i=16, k=8), typed(layer=8, k=8, n=8)), entries)


def blurred() -> Schedule:
    return planned(lambda u: blur(u), (typed(y=64),), {"y": "model"})


def ordered(**entries: Any) -> Schedule:
    return planned(lambda x: decayed(x), (typed(t=32),), entries)


# What is damaged, and what the proof says of it.


def a_window_off_by_one() -> Schedule:
    def moved(step: Convert) -> Convert:
        (overlap,) = step.changes
        assert isinstance(overlap, Overlap) and overlap.cut.window is not None
        window = replace(overlap.cut.window, offset=overlap.cut.window.offset + 1)
        return replace(step, changes=(replace(overlap, cut=replace(overlap.cut, window=window)),))

    return damaged(blurred(), Convert, moved)


def a_window_off_by_one_everywhere() -> Schedule:
    schedule = a_window_off_by_one()
    (convert,) = (step for step in schedule.steps if isinstance(step, Convert))
    (overlap,) = convert.changes
    assert isinstance(overlap, Overlap)
    return with_layout(schedule, convert.result, 0, overlap.cut)


def an_exchange_left_out() -> Schedule:
    return damaged(blurred(), Convert, lambda step: replace(step, changes=()))


def stripes_that_were_not_dealt() -> Schedule:
    found = attention(queries=tp.striped("model"), keys=tp.ring("model"))
    return damaged(found, Convert, lambda step: replace(step, changes=()))


def stripes_read_as_blocks() -> Schedule:
    found = attention(queries=tp.striped("model"), keys=tp.ring("model"))
    return damaged(found, Run, lambda step: recut(step, "d1", cut_of(step, "d1").in_blocks))


def a_ring_with_a_turn_less() -> Schedule:
    return renamed(attention(queries="model", keys=tp.ring("model")), "@keys:4~model", "@keys:3~model")


def a_ring_backwards() -> Schedule:
    found = attention(queries="model", keys=tp.ring("model"))
    return damaged(found, Region, lambda step: replace(step, reverse=True))


def a_loop_with_a_turn_less() -> Schedule:
    return renamed(product(k=tp.chunks(4)), "@k:4", "@k:3")


def a_chunk_taken_twice() -> Schedule:
    def again(step: Convert) -> Convert:
        (change,) = step.changes
        assert isinstance(change, Slice)
        return replace(step, changes=(replace(change, cut=replace(change.cut, block=change.cut.block - 1)),))

    return damaged(product(i=tp.chunks(4)), Convert, again)


def a_slice_of_another_axis() -> Schedule:
    def other(step: Convert) -> Convert:
        (change,) = step.changes
        return replace(step, changes=(replace(change, axis=0, size=16),))

    return damaged(product(k=tp.chunks(4)), Convert, other)


def a_merge_over_an_axis_too_many() -> Schedule:
    found = product(k=("data", tp.chunks(2)))
    wide = Cut(("data", "model", "@k:2"), 2)
    return damaged(found, Finish, lambda step: replace(recut(step, "k", wide), axes=frozenset({"data", "model"})))


def a_merge_over_an_axis_too_few() -> Schedule:
    found = product(k=("data", "model", tp.chunks(2)))
    return damaged(found, Finish, lambda step: recut(step, "k", Cut(("data", "@k:2"), 8)))


def a_merge_in_another_order() -> Schedule:
    found = ordered(t=("data", "model", tp.chunks(2)))
    return damaged(found, Finish, lambda step: recut(step, "t", Cut(("model", "data", "@t:2"), 2)))


def a_merge_of_stripes_that_does_not_commute() -> Schedule:
    def dealt(step: Run) -> Run:
        return recut(step, "t", replace(cut_of(step, "t"), striped=True))

    found = damaged(ordered(t="model"), Run, dealt)
    return with_layout(found, found.inputs[0], 0, Cut(("model",), 8, striped=True))


def states_that_no_turn_adds_up() -> Schedule:
    def apart(step: Region) -> Region:
        return replace(step, folds=())

    return damaged(product(k=tp.chunks(4)), Region, apart)


def a_loop_backwards() -> Schedule:
    return damaged(scanned(t=tp.chunks(4)), Region, lambda step: replace(step, reverse=True))


def a_scan_that_begins_on_every_device() -> Schedule:
    found = scanned(t=("data", tp.chunks(2)))
    steps = [step for step in found.steps if isinstance(step, Region) and not step.ends]
    return replace(found, steps=tuple(replace(step, operands=step.operands[:1]) for step in steps))


def a_scan_that_does_not_go_on() -> Schedule:
    def anew(step: Run) -> Run:
        return replace(step, carried=False, operands=step.operands[:1], results=step.results[:1])

    return damaged(scanned(t=tp.chunks(4)), Run, anew)


def stages_swapped() -> Schedule:
    found = stacked(layer=("data", "model"), i=tp.chunks(4))
    return damaged(found, Region, lambda step: replace(step, stages=step.stages[::-1]))


def a_layer_too_few() -> Schedule:
    return damaged(stacked(i="data"), Repeat, lambda step: replace(step, length=step.length - 1))


def layers_of_another_stage() -> Schedule:
    found = stacked(layer="model", i=tp.chunks(4))
    return with_layout(found, found.inputs[1], 0, None)


def a_pipeline_that_keeps_to_the_first_stage() -> Schedule:
    # What the last stage holds is handed out as if all devices held it.
    found = stacked(layer="model", i=tp.chunks(4))
    return replace(found, steps=tuple(_unshared(step) for step in found.steps))


def _unshared(step: Any) -> Any:
    if not isinstance(step, Convert):
        return step
    return replace(step, changes=tuple(change for change in step.changes if not isinstance(change, Share)))


def with_cast(change: Callable[[Cast], Cast]) -> Schedule:
    """Of weights that all devices have, whose gradients are added up."""

    def mixed(step: Convert) -> Convert:
        return replace(step, changes=tuple(change(each) if isinstance(each, Cast) else each for each in step.changes))

    return damaged(product(i="model"), Convert, mixed)


def gradients_in_no_order() -> Schedule:
    return with_cast(lambda cast: replace(cast, order=(0, 2)))


def gradients_added_up_over_no_axis() -> Schedule:
    return with_cast(lambda cast: replace(cast, axes=("nowhere",)))


def a_gather_of_no_operand() -> Schedule:
    return damaged(product(i="model"), Run, lambda step: replace(step, gathers=((2, ()),)))


def operands_swapped() -> Schedule:
    found = planned(lambda x, w: matmul(x, w), (typed(i=8, k=8), typed(k=8, n=8)), {})
    return damaged(found, Run, lambda step: replace(step, operands=step.operands[::-1]))


def a_gather_in_the_turns_of_a_ring() -> Schedule:
    # What goes round is other rows on every device: gathering the columns along the ring mixes them.
    found = planned(
        lambda x, w: matmul(x, w), (typed(i=8, k=8), typed(k=8, n=8)), {"i": "model", "n": tp.ring("model")}
    )

    def mixed(step: Run) -> Run:
        return replace(step, gathers=((1, (Gather(0, ("model",), 8, True),)),))

    (region,) = (step for step in found.steps if isinstance(step, Region))
    slots = list(region.body.slots)
    at = region.body.inputs[1]
    slots[at] = replace(slots[at], layout=slots[at].layout.with_cut(0, Cut(("model",), 2)))
    body = replace(region.body, slots=tuple(slots))
    broken = replace(region, body=damaged(body, Run, mixed))
    outer = list(found.slots)
    outside = region.operands[1]
    outer[outside] = replace(outer[outside], layout=outer[outside].layout.with_cut(0, Cut(("model",), 2)))
    steps = tuple(broken if step is region else step for step in found.steps)
    return replace(found, steps=steps, slots=tuple(outer))


def rows_that_nobody_computes() -> Schedule:
    return damaged(product(i="model"), Run, lambda step: recut(step, "i", Cut(("model",), 3)))


def one_axis_for_two_dimensions() -> Schedule:
    found = product(i="model", n="data")
    return damaged(found, Run, lambda step: recut(step, "n", Cut(("model",), 2)))


def blocks_put_in_order_as_stripes() -> Schedule:
    found = planned(
        lambda x: tp.Map(jnp.tanh)(x), (typed(t=12),), {"t": tp.striped("model")}, outputs={"y": {"t": None}}
    )

    def in_blocks(change: Any) -> Any:
        return replace(change, cut=change.cut.in_blocks) if isinstance(change, Slice) else change

    steps: list[Any] = []
    for step in found.steps:
        if isinstance(step, Run):
            step = recut(step, "d0", cut_of(step, "d0").in_blocks)
        elif isinstance(step, Convert):
            step = replace(step, changes=tuple(map(in_blocks, step.changes)))
        steps.append(step)
    slots = tuple(replace(slot, layout=slot.layout.in_blocks) for slot in found.slots)
    return replace(found, steps=tuple(steps), slots=slots)


def an_exchange_in_another_order() -> Schedule:
    found = planned(lambda u: blur(u), (typed(y=64),), {"y": ("data", "model")})

    def turned(step: Convert) -> Convert:
        (overlap,) = step.changes
        assert isinstance(overlap, Overlap) and overlap.source is not None
        return replace(step, changes=(replace(overlap, source=replace(overlap.source, axes=("model", "data"))),))

    return with_layout(damaged(found, Convert, turned), found.inputs[0], 0, Cut(("model", "data"), 8))


def a_gather_that_drops_cells() -> Schedule:
    found = planned(
        lambda x: tp.Map(jnp.tanh)(x), (typed(i=16, k=8),), {"i": "model"}, inputs={"x": {"i": ("model", "data")}}
    )

    def dropped(step: Convert) -> Convert:
        kept = [replace(each, size=1) if isinstance(each, Gather) else each for each in step.changes]
        return replace(step, changes=tuple(kept))

    return damaged(found, Convert, dropped)


def totals_passed_on_in_another_order() -> Schedule:
    def turned(step: Finish) -> Finish:
        cut = cut_of(step, "t")
        return recut(step, "t", replace(cut, axes=cut.axes[::-1]))

    return damaged(scanned(t=("data", "model", tp.chunks(2))), Finish, turned)


def totals_that_are_not_passed_on() -> Schedule:
    found = scanned(t=("data", tp.chunks(2)))
    return damaged(found, Finish, lambda step: recut(step, "t", replace(cut_of(step, "t"), axes=())))


def totals_of_a_longer_block() -> Schedule:
    found = scanned(t=("data", tp.chunks(2)))
    return damaged(found, Finish, lambda step: recut(step, "t", Cut(("data",), cut_of(step, "t").block + 1)))


def states_of_a_longer_block() -> Schedule:
    found = ordered(t=("data", tp.chunks(2)))
    return damaged(found, Finish, lambda step: recut(step, "t", Cut(("data", "@t:2"), cut_of(step, "t").block + 1)))


def an_end_with_an_axis_twice() -> Schedule:
    found = ordered(t=("data", tp.chunks(2)))
    return damaged(found, Finish, lambda step: recut(step, "t", Cut(("data", "@t:2", "@t:2"), 8)))


def a_scan_that_goes_on_in_another_order() -> Schedule:
    # What lies before each device is found over (data, model), and gone on from over (model, data).
    program = tp.trace(lambda x: running(x), typed(t=32, c=8))
    plan = tp.plan(program, MESH, {"t": ("data", "model", tp.chunks(2))}, inputs={"x": {"t": None}})
    convert, passed, finish, loop = plan.schedule.steps
    assert isinstance(convert, Convert) and isinstance(passed, Region) and isinstance(loop, Region)
    other, turn = Cut(("model", "data"), 4), Cut(("model", "data", "@t:2"), 2)
    body = replaced(replaced(loop.body, Cut(("data", "model"), 4), other), Cut(("data", "model", "@t:2"), 2), turn)
    again, slots = len(plan.schedule.slots), plan.schedule.slots
    (change,) = convert.changes
    assert isinstance(change, Slice)
    taken = replace(convert, result=again, changes=(replace(change, cut=other),))
    steps = convert, passed, finish, taken, replace(loop, operands=(again, *loop.operands[1:]), body=body)
    found = replace(plan.schedule, steps=steps, slots=(*slots, slots[convert.result]))
    for slot in (again, *loop.results):
        found = with_layout(found, slot, 0, other)
    return found


def a_pipeline_without_stages() -> Schedule:
    return damaged(product(i=tp.chunks(4)), Region, lambda step: replace(step, stages=("data",)))


def totals_of_no_scan() -> Schedule:
    return damaged(product(k=tp.chunks(4)), Region, lambda step: replace(step, ends=True))


def a_state_said_to_be_the_same_on_all_devices() -> Schedule:
    def alike(step: Region) -> Region:
        slots = list(step.body.slots)
        (state,) = step.body.outputs
        slots[state] = replace(slots[state], varying=frozenset())
        return replace(step, body=replace(step.body, slots=tuple(slots)))

    return damaged(product(k=("data", tp.chunks(2))), Region, alike)


def a_state_in_another_dtype() -> Schedule:
    found = product(k=("data", tp.chunks(2)))
    (region,) = (step for step in found.steps if isinstance(step, Region))
    slots, (state,) = list(found.slots), region.results
    slots[state] = replace(slots[state], type=tp.TensorType.make((None, None), (16, 8), jnp.bfloat16))
    return replace(found, slots=tuple(slots))


def blocks_said_to_differ() -> Schedule:
    return damaged(product(i="data"), Run, lambda step: replace(step, axes=frozenset({"data", "model"})))


def a_state_of_what_is_in_no_pieces() -> Schedule:
    return damaged(product(i="data"), Run, lambda step: replace(step, carried=True))


def a_fold_that_runs_twice_in_a_loop() -> Schedule:
    # Nobody reads the second state; but what a loop carries is told by the last step that runs the fold.
    def twice(step: Region) -> Region:
        body = step.body
        (run,) = (inner for inner in body.steps if isinstance(inner, Run))
        again = replace(run, results=(len(body.slots),), cuts=(*run.cuts, ("n", Cut((), 8))))
        slots = (*body.slots, body.slots[run.results[0]])
        return replace(step, body=replace(body, slots=slots, steps=(*body.steps, again)))

    return damaged(product(k=("data", tp.chunks(2))), Region, twice)


def a_value_of_a_pipeline_that_all_devices_read() -> Schedule:
    found = planned(
        lambda x, w, b: (tp.stack(lambda x, w: shifted(x, w, b), 8)(x, w), b),
        (typed(i=16, k=8), typed(layer=8, k=8, n=8), typed(n=8)),
        {"layer": "model", "i": tp.chunks(4)},
    )
    (region,) = (step for step in found.steps if isinstance(step, Region))
    place, body, slots = region.operands[-1], region.body, (*found.slots, found.slots[region.operands[-1]])
    assert found.slots[place].type.shape == (8,)
    read = replace(body, outputs=(*body.outputs, body.inputs[-1]))
    broken = replace(region, body=read, results=(*region.results, len(found.slots)))
    steps = tuple(broken if step is region else step for step in found.steps)
    return replace(found, slots=slots, steps=steps, outputs=(found.outputs[0], len(found.slots)))


def an_operand_that_is_handed_on_twice() -> Schedule:
    found = stacked(layer="model", i=tp.chunks(4))
    return damaged(found, Region, lambda step: replace(step, handed=step.handed * 2))


def a_result_of_a_repetition_too_many() -> Schedule:
    return damaged(stacked(i="data"), Repeat, lambda step: replace(step, results=step.results * 2))


def an_axis_counted_from_the_last() -> Schedule:
    def behind(step: Convert) -> Convert:
        (change,) = step.changes
        assert isinstance(change, Slice)
        return replace(step, changes=(replace(change, axis=-2),))

    return damaged(product(i=tp.chunks(4)), Convert, behind)


def a_scatter_counted_from_the_last() -> Schedule:
    types = typed(i=16, k=32), typed(k=32, n=8)
    found = planned(lambda x, w: matmul(x, w), types, {"k": ("data", tp.chunks(2))}, outputs={"y": {"i": "data"}})

    def behind(step: Finish) -> Finish:
        assert step.scatter is not None
        return replace(step, scatter=replace(step.scatter, axis=-2))

    return damaged(found, Finish, behind)


def an_end_that_cuts_a_dimension_twice() -> Schedule:
    found = product(k=("data", tp.chunks(2)))
    return damaged(found, Finish, lambda step: replace(step, cuts=step.cuts * 2))


def an_end_that_does_not_cut_a_dimension() -> Schedule:
    found = product(k=("data", tp.chunks(2)), n=tp.chunks(2), i="model")
    return damaged(found, Finish, lambda step: recut(step, "i", Cut((), 16)))


# Every damage, and the lines of the error before its remedy.
DAMAGES = {
    a_window_off_by_one: (
        "`mean` converts an operand into another layout than it says",
        "  on the first device: makes [0:18], stores [-1:17]",
    ),
    a_window_off_by_one_everywhere: (
        "`mean` reads other cells of operand 0 than it holds",
        "  on the first device: reads [-1:17], holds [0:18]",
    ),
    an_exchange_left_out: (
        "`mean` converts an operand into another layout than it says",
        "  on the first device: makes [0:16], stores [-1:17]",
    ),
    stripes_that_were_not_dealt: (
        "`attention` converts an operand into another layout than it says",
        "  makes blocks, blocks, blocks, stores blocks, stripes of 4, blocks",
        "  box [0:2, 0:4, 0:4]",
    ),
    stripes_read_as_blocks: (
        "`attention` reads other cells of operand 0 than it holds",
        "  reads blocks, blocks, blocks, holds blocks, stripes of 4, blocks",
        "  box [0:2, 0:4, 0:4]",
    ),
    a_ring_with_a_turn_less: (
        "`keys in ring model` turns 3 times round `model`, which has 4 devices",
        "  cells [12:16] along axis 1 of operand 1 are never met",
        "  cells [12:16] along axis 1 of operand 2 are never met",
    ),
    a_loop_with_a_turn_less: (
        "`einsum` stores axis 1 of float32(i=16, k=32) with a gap",
        "  nobody holds [24:32]",
    ),
    a_chunk_taken_twice: (
        "`einsum` converts an operand into another layout than it says",
        "  on the first device: makes [0:3, 0:32], stores [0:4, 0:32]",
    ),
    a_slice_of_another_axis: (
        "`einsum` converts an operand into another layout than it says",
        "  on the first device: makes [0:8, 0:32], stores [0:16, 0:8]",
    ),
    a_merge_over_an_axis_too_many: (
        "`einsum` merges states over `model`, whose devices hold the same state",
        "  leaf 0 of the state folds [0:8] on model=0, [0:8] on model=1",
    ),
    a_merge_over_an_axis_too_few: (
        "`einsum` does not merge states over `model`, whose devices hold different ones",
        "  leaf 0 of the state folds [0:2] on model=0, [4:6] on model=1",
    ),
    a_merge_in_another_order: (
        "`last` merges states in the order of (model, data), which its monoid does not allow",
        "  their order is (data, model)",
        "  leaf 0 of the state folds [0:2] on data=0, [16:18] on data=1",
    ),
    a_merge_of_stripes_that_does_not_commute: (
        "`x` is stored in stripes, in chunks or with an overlap",
        "  layout Layout(cuts=(Cut(axes=('model',), block=8, window=None, striped=True),))",
    ),
    states_that_no_turn_adds_up: (
        "`einsum` leaves a state behind that the turns of 4 chunks have not added up",
        "  leaf 0 of the state folds [0:8] on turn 0 of k, [8:16] on turn 1 of k",
    ),
    a_loop_backwards: (
        "`scan` goes on from turn to turn in the wrong direction",
        "  takes [24:32] of `t` before [0:8], not [0:8] of `t` before [24:32]",
    ),
    a_scan_that_begins_on_every_device: (
        "`scan` begins anew on every device along `data`",
        "  on data=1 it takes [16:24] of `t` first",
    ),
    a_scan_that_does_not_go_on: (
        "`scan` begins anew in every turn over `t`",
        "  the second turn takes [8:16] and does not go on from what lies before",
    ),
    stages_swapped: (
        "`stack` has stages along (data, model), in a pipeline along (model, data)",
        "  the layers [1:2] lie on the second device along each",
    ),
    a_layer_too_few: (
        "`stack` turns 7 times, where its program turns 8 times",
        "  the turns [7:8] are left out",
    ),
    layers_of_another_stage: (
        "`stack by 4 chunks of i` hands its turns other cells of operand 1 than they expect",
        "  on the first device: expects [0:2, 0:8, 0:8], is handed [0:8, 0:8, 0:8]",
    ),
    a_pipeline_that_keeps_to_the_first_stage: (
        "`stack by 4 chunks of i` reads on all devices what the last stage alone has made",
        "  got result 0 of `stack`, on the last stage alone",
    ),
    gradients_in_no_order: (
        "`einsum` puts gradients in an order of axes that is none",
        "  got (0, 2) of 2 axes",
    ),
    gradients_added_up_over_no_axis: ("`einsum` is cut over `nowhere`, which the mesh does not have",),
    a_gather_of_no_operand: ("`einsum` gathers operand 2, which it does not read",),
    operands_swapped: (
        "`einsum` reads another value than its program names",
        "  expected result 0 of `x`",
        "  got result 0 of `w`",
    ),
    a_gather_in_the_turns_of_a_ring: (
        "`n in ring model` sends pieces round along `model`, whose devices hold different pieces of another dimension",
        "  the box of the others is [0:2] on model=0 and [2:4] on model=1, in the same turn",
    ),
    rows_that_nobody_computes: (
        "the pieces of `einsum` do not cover its index space exactly",
        "  dimensions i",
        "  no part holds [12:16]",
    ),
    one_axis_for_two_dimensions: (
        "the pieces of `einsum` do not cover its index space exactly",
        "  dimensions i, n",
        "  no part holds [0:4, 2:4]",
    ),
    blocks_put_in_order_as_stripes: (
        "`output y` puts blocks in order as stripes of 3",
        "  cells [0:12]",
    ),
    an_exchange_in_another_order: (
        "`mean` exchanges cells with neighbours of another order",
        "  blocks over (model, data), wanted over (data, model): the second, [8:16], lies on another device",
    ),
    a_gather_that_drops_cells: (
        "`tanh` converts an operand into another layout than it says",
        "  on the first device: makes [0:1, 0:8], stores [0:4, 0:8]",
    ),
    a_ring_backwards: (
        "`keys in ring model` goes backwards round `model`, while pieces are sent on forwards",
        "  then cells [12:16] along axis 1 of operand 1 arrive on the first device",
        "  then cells [12:16] along axis 1 of operand 2 arrive on the first device",
    ),
    totals_passed_on_in_another_order: (
        "`scan` ends in other pieces of `t` than it was given",
        "  on data=1: names [4:8], is given [16:20]",
    ),
    totals_that_are_not_passed_on: (
        "`scan` ends in other pieces of `t` than it was given",
        "  on data=1: names [0:16], is given [16:32]",
    ),
    totals_of_a_longer_block: (
        "`scan` ends in other pieces of `t` than it was given",
        "  on the first device: names [0:17], is given [0:16]",
    ),
    states_of_a_longer_block: (
        "`last` ends in other pieces of `t` than it was given",
        "  on the first device: names [0:9], is given [0:8]",
    ),
    an_end_with_an_axis_twice: (
        "`last` ends in other pieces of `t` than it was given",
        "  on turn 1 of t: names [24:32], is given [8:16]",
    ),
    a_scan_that_goes_on_in_another_order: (
        "`scan` goes on in other pieces of `t` than it was given",
        "  on data=1: names [4:6], is given [16:18]",
    ),
    a_pipeline_without_stages: ("`i in 4 chunks` hands 0 operands from stage to stage along `data`",),
    totals_of_no_scan: ("`k in 4 chunks` looks for totals alone, and scans nothing",),
    a_state_said_to_be_the_same_on_all_devices: (
        "`einsum` says that leaf 0 of its state is the same along `data`, where it folds other cells",
    ),
    a_state_in_another_dtype: (
        "`k in 2 chunks` stores a state in another dtype",
        "  bfloat16, not float32: leaf 0 of the state of `einsum`, in pieces over (data)",
    ),
    blocks_said_to_differ: ("`einsum` is not cut over `model`, along which its blocks are said to differ",),
    a_state_of_what_is_in_no_pieces: ("`einsum` hands on a state, or a total, of what is in no pieces",),
    a_fold_that_runs_twice_in_a_loop: (
        "`einsum` runs twice in a loop, in other pieces",
        "  cuts `k` in blocks of 8 over (data, @k:2)",
        "  cuts `k` in blocks of 8 over (data, @k:2), `n` in blocks of 8 over ()",
    ),
    a_value_of_a_pipeline_that_all_devices_read: (
        "`output y/1` reads another value than its program names",
        "  expected result 0 of `b`",
        "  got result 0 of `b`, on the last stage alone",
    ),
    an_operand_that_is_handed_on_twice: (
        "`stack by 4 chunks of i` hands an operand from stage to stage twice",
        "  operands (0, 0)",
    ),
    a_result_of_a_repetition_too_many: ("`stack` stores 2 results of its 1",),
    an_axis_counted_from_the_last: (
        "`einsum` changes an axis that is not there",
        "  got Slice(axis=-2, cut=Cut(axes=('@i:4',), block=4, window=None, striped=False), size=16, alike=False)",
    ),
    a_scatter_counted_from_the_last: ("`einsum` scatters axis -2, which is not whole before it is",),
    an_end_that_cuts_a_dimension_twice: (
        "`einsum` ends with a dimension that is cut twice",
        "  cuts of k, k",
    ),
    an_end_that_does_not_cut_a_dimension: (
        "`einsum` ends in other pieces of `i` than it was given",
        "  on the first device: names [0:16], is given [0:4]",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_schedule_is_refused(damage: Any) -> None:
    schedule = damage()
    with pytest.raises(tp.PlanError) as caught:
        prove(schedule)
    assert str(caught.value).splitlines() == [*DAMAGES[damage], "  Plan again: this schedule was damaged."]


def test_what_nobody_asked_to_be_padded_has_its_true_shape() -> None:
    graph = tp.trace(tp.Map(jnp.sin), tp.TensorType({"x": 8}))
    plan = tp.plan(graph, tp.mesh(data=8), {"x": "data"})
    wider = replace(plan, schedule=replaced(plan.schedule, Cut(("data",), 1), Cut(("data",), 2)))
    prove(wider.schedule)  # every true cell is right
    with pytest.raises(tp.PlanError, match=r"`x` is padded, which nobody asked for\n  shape .8,., stored as .16,."):
        wider.verify()
    stored = {"x": {"x": tp.padded("data")}}
    uneven = tp.trace(tp.Map(jnp.sin), tp.TensorType({"x": 9}))
    asked = tp.plan(uneven, tp.mesh(data=8), {"x": "data"}, inputs=stored)
    asked.verify()
    with pytest.raises(tp.PlanError, match="`x` is padded, which nobody asked for"):
        replace(asked, inputs=()).verify()
    with pytest.raises(tp.PlanError, match="`x` does not lie as it was asked for"):
        replace(tp.plan(uneven, tp.mesh(data=8), {"x": "data"}), inputs=asked.inputs).verify()


def test_no_result_lies_on_a_mesh_axis_twice() -> None:
    plan = tp.plan(tp.trace(tp.Map(jnp.sin), tp.TensorType({"x": 8, "y": 8})), tp.mesh(data=8), {"x": "data"})
    schedule = with_layout(plan.schedule, plan.schedule.outputs[0], 1, Cut(("data",), 1))
    with pytest.raises(tp.PlanError):
        replace(plan, schedule=schedule).verify()
    with pytest.raises(tp.PlanError, match="`y` lies on the mesh axis `data` more than once"):
        prove_boundary(schedule, {}, {})


# Wrong results that plans once had, planted back: the rule that refuses or mends them is switched off.


@pytest.mark.parametrize("reads_coordinates", [False, True], ids=["values", "coordinates"])
def test_stripes_on_one_device_are_refused(monkeypatch: Any, reads_coordinates: bool) -> None:
    monkeypatch.setattr(placement, "in_space", lambda axes: tuple(axes))
    weighted = tp.Reduce(lambda x, p: (x * (1 + p)).sum(), "p, @p -> ", tp.monoids.Sum)
    fold = weighted if reads_coordinates else tp.fold(tp.aggregators.Sum(), "p -> ")
    mesh = AbstractMesh((1,), ("cp",))
    plan = tp.plan(tp.trace(fold, typed(p=8)), mesh, {"p": (tp.striped("cp"), tp.chunks(4))})
    with pytest.raises(tp.PlanError) as caught:
        plan.verify()
    assert str(caught.value) == (
        f"`{'lambda' if reads_coordinates else 'Sum'}` converts an operand into another layout than it says\n"
        "  on the first device: makes [0:8], stores [0:2]\n"
        "  Plan again: this schedule was damaged."
    )


@pytest.mark.parametrize("rows", ["model", ("data", "model"), ("model", tp.chunks(2))], ids=["axis", "axes", "chunks"])
@pytest.mark.parametrize("layers", [0, 2], ids=["alone", "in a stack"])
@pytest.mark.parametrize("scan", ["sum", "recurrence", "maximum"])
def test_a_scan_over_the_axis_of_a_ring_is_refused(monkeypatch: Any, scan: str, layers: int, rows: Any) -> None:
    monkeypatch.setattr(placement, "check_loops", lambda *_: None)
    monkeypatch.setattr(by_hand, "_check_rings", lambda _: None)
    table = typed(r=16, p=8)

    def once(x: Any, a: Any) -> Any:
        if scan == "recurrence":
            return affine(a, x)
        return largest(x * a) if scan == "maximum" else tp.Scan(tp.monoids.Sum, "r p -> r p", over="r")(x * a)

    program = (lambda x, a: tp.stack(once, layers)(x, a)) if layers else once
    types = table, typed(layer=layers, r=16, p=8) if layers else table
    plan = tp.plan(tp.trace(program, *types), MESH, {"r": rows, "p": tp.ring("model")})
    with pytest.raises(tp.PlanError) as caught:
        plan.verify()
    headline, *boxes, remedy = str(caught.value).splitlines()
    assert remedy == "  Plan again: this schedule was damaged."
    if layers and rows == ("model", tp.chunks(2)):
        # The rule also keeps chunks of one dimension out of the stacked operands of a ring over another.
        assert headline == "`stack` takes 2 chunks of `r`, outside of that loop"
        return
    together = "along `model`, whose devices hold different pieces of another dimension"
    assert headline.endswith(f"` passes totals on {together}")
    assert boxes == ["  the box of the others is [0:2] on model=0 and [2:4] on model=1, in the same turn"]


# What an exchange of neighbours sends is followed cell by cell.


def _moved(exchange: NeighbourExchange, distance: int) -> NeighbourExchange:
    devices = len(exchange.inside)
    first, *others = exchange.hops
    pairs = tuple((source, (target + distance) % devices) for source, target in first.pairs)
    return NeighbourExchange((Hop(pairs, first.length, first.sent), *others), exchange.held, exchange.inside)


def _shifted(exchange: NeighbourExchange, by: int) -> NeighbourExchange:
    first, *others = exchange.held
    starts = tuple(start + by for start in first.starts)
    return NeighbourExchange(exchange.hops, (replace(first, starts=starts), *others), exchange.inside)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda exchange: _moved(exchange, 1), "device 0 of 4 reads [-1:0] of 64 cells; the first of them is cell 47"),
        (
            lambda exchange: _shifted(exchange, 1),
            "device 0 of 4 reads [-1:0] of 64 cells; the first of them is nothing",
        ),
        (lambda exchange: NeighbourExchange((), exchange.held[:1], exchange.inside), ""),
    ],
    ids=["another distance", "another cell", "nothing sent"],
)
def test_a_wrong_exchange_is_refused(monkeypatch: Any, change: Any, told: str) -> None:
    schedule, whole = blurred(), Overlap.exchange
    monkeypatch.setattr(Overlap, "exchange", lambda self, mesh: change(whole(self, mesh)))
    with pytest.raises(tp.PlanError) as caught:
        prove(schedule)
    headline, detail, _ = str(caught.value).splitlines()
    assert headline == "`mean` does not receive the cells that its indices read"
    assert told in detail


@pytest.mark.parametrize("mode", BOUNDARIES)
@pytest.mark.parametrize(("size", "depth"), [(64, 1), (61, 1), (64, 3), (13, 1), (5, 1)])
def test_exchanges_hold_for_every_boundary(mode: str, size: int, depth: int) -> None:
    step = tp.Map(mean, "(y+[dy]-1) -> y" if mode != "valid" else "(y+[dy]) -> y", sizes={"dy": 3}, boundary=mode)
    program = (lambda u: step(u)) if mode == "valid" else lambda u: tp.iterate(step, 6)(u)
    halo = (tp.halo(depth=depth),) if mode != "valid" else ()
    planned(program, (typed(y=size),), {"y": ("model", *halo)})


def test_few_devices_stand_for_many() -> None:
    # The same tables, once of all devices and once of those that differ.
    cut = Cut(("devices",), 8)
    wide = replace(cut, window=Window(-3, 7, 1, 8 * 100 - 4, "edge"))
    assert fewer(cut, wide, 8 * 100 - 4, 103).devices < 50
    site = Site(MeshShape((("devices", 103),)))
    assert changed.check_exchange(Overlap(0, cut, wide, 8 * 100 - 4), 8 * 100 - 4, site, "path")


# The cost is of the program.


def _large() -> list[tp.Plan]:
    mesh = AbstractMesh((2**10, 2**10), ("a", "b"))
    rows = 2**40
    product_ = tp.trace(lambda x, w: matmul(x, w), typed(i=rows, k=2**20), typed(k=2**20, n=64))
    scan = tp.trace(lambda x: running(x), typed(t=rows, c=4))
    window = tp.Map(mean, "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary="zero")
    stencil = tp.trace(lambda u: window(u), typed(y=rows))
    queries = [typed(heads=4, queries=2**30, d=8), typed(heads=4, keys=2**30, d=8), typed(heads=4, keys=2**30, e=8)]
    seen = {"queries": (tp.striped("a"), tp.chunks(64)), "keys": (tp.ring("a"), tp.chunks(64)), "heads": None}
    return [
        tp.plan(product_, mesh, {"i": ("a", tp.chunks(8)), "k": "b"}),
        tp.plan(scan, mesh, {"t": ("a", "b", tp.chunks(8))}),
        tp.plan(stencil, AbstractMesh((2**20,), ("a",)), {"y": "a"}),
        tp.plan(tp.trace(attend, *queries), mesh, seen),
    ]


def test_the_cost_does_not_depend_on_devices_or_sizes() -> None:
    for plan in _large():
        began = time.process_time()
        plan.verify()
        assert time.process_time() - began < 1


def test_what_is_not_proved_is_neither_compiled_nor_shown_to_a_compiler(mesh2x4: Any) -> None:
    plan = tp.plan(tp.trace(blur, typed(y=16)), mesh2x4, {"y": "data"})
    broken = replace(plan, schedule=damaged(plan.schedule, Convert, lambda step: replace(step, changes=())))
    with pytest.raises(tp.PlanError, match="is not compiled: it cannot be proved"):
        broken.compile()
    with pytest.raises(tp.PlanError, match="this schedule was damaged"):
        broken.compile_only()
