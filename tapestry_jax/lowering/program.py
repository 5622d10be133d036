"""Running a schedule: the body of the one SPMD program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.equations.scanned import scan
from combinators.merging.blocks import identity_block
from combinators.operations.execute import present, run_blocks, states
from combinators.operations.outside import answering
from combinators.operations.shaped import Shaped, is_written
from tapestry_jax.lowering import time as loops
from tapestry_jax.lowering.exchange.convert import convert
from tapestry_jax.lowering.exchange.fold import merge_states, partial_states
from tapestry_jax.lowering.on_device.attained import value_of, with_counts
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.kernels import device_kernels
from tapestry_jax.lowering.on_device.pad import pad_axis
from tapestry_jax.lowering.on_device.read import read_blocks
from tapestry_jax.lowering.on_device.recomputed import kept, recomputed, recomputed_apart
from tapestry_jax.lowering.on_device.untyped import states_on_device
from tapestry_jax.lowering.on_device.varying import received, vary, varying_axes
from tapestry_jax.lowering.padding.valid import (
    asked_for,
    has_seams,
    is_repeated,
    is_torn,
    on_valid_rows,
    pulls_otherwise,
    without_rows_of_nothing,
)
from tapestry_jax.lowering.time.regather import gathering
from tapestry_jax.lowering.time.region import run_region
from tapestry_jax.lowering.time.scan import scan_in_turn, scan_over_mesh, total_before
from tapestry_jax.planning.entries.remat import RINGS
from tapestry_jax.planning.folding.merges import local_sizes, local_state
from tapestry_jax.planning.folding.traffic import varying_leaves
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.refining.repeats import Part, repeated_parts
from tapestry_jax.planning.scheduling.reads import fold_axes, folds_nothing
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Slot


def run_schedule(schedule: Schedule, inputs: Sequence[Any]) -> list[Any]:
    """Run all steps on one device's pieces of the inputs; returns its pieces of the outputs."""
    values: dict[int, Any] = dict(zip(schedule.inputs, inputs, strict=True))
    here = Here(schedule.mesh.axes, platforms=schedule.platforms, torn=is_torn(schedule))
    return run_steps(schedule, values, here)


def run_steps(schedule: Schedule, values: dict[int, Any], here: Here) -> list[Any]:
    """Run the steps on slots that are already filled.

    Parts that repeat, such as layers, become one jitted function called several times: it is traced, differentiated and
    lowered once. XLA inlines it, and puts the scope of each call before the names inside.
    """
    known: dict[int, Any] = {}
    for part in repeated_parts(schedule):
        if part.kind is None and part.unit is None:
            _run_part(schedule, part, values, here)
            continue
        function = known.get(part.kind) if part.kind is not None else None
        if function is None:
            function = _function(schedule, part, here)
        if part.kind is not None:
            known[part.kind] = function
        with jax.named_scope(part.scope):
            results = function([*(values[slot] for slot in part.operands), *_turns(part, here)])
        values.update(zip(part.results, results, strict=True))
    return [values[slot] for slot in schedule.outputs]


def _function(schedule: Schedule, part: Part, here: Here) -> Any:
    """What a part does to its operands; parts of one kind share the function of the first, jitted."""

    def repeated(operands: list[Any]) -> list[Any]:
        turns = dict(zip(here.counters, operands[len(part.operands) :], strict=False))
        values = dict(zip(part.operands, operands, strict=False))
        _run_part(schedule, part, values, here.at(turns) if part.unit is not None else here)
        return [values[slot] for slot in part.results]

    function = repeated if part.unit is None else recomputed_apart(repeated, keeps=bool(part.unit.keeps))
    return function if part.kind is None else jax.jit(function)


def _turns(part: Part, here: Here) -> list[Any]:
    """The numbers of the turns around a unit, whose derivative must not know them from outside."""
    return list(here.counters.values()) if part.unit is not None else []


def _run_part(schedule: Schedule, part: Part, values: dict[int, Any], here: Here) -> None:
    above = len(part.scope) + 1 if part.kind is not None or part.unit is not None else 0
    for step in part.steps:
        with jax.named_scope(step.path[above:]):
            match step:
                case _ if not any(schedule.slots[slot].has_cells for slot in step.results):
                    # XLA's partitioner fails on programs all of whose arrays are empty: such values are made here.
                    values.update({slot: _without_cells(schedule.slots[slot]) for slot in step.results})
                case Convert():
                    values[step.result] = jax.tree.map(
                        lambda part, step=step: convert(part, step.changes, here, kept=not step.again),
                        values[step.source],
                    )
                case Run():
                    results = _run(schedule, step, here, [values[slot] for slot in step.operands])
                    values.update(zip(step.results, kept(results) if step.kept else results, strict=True))
                case Finish():
                    results = finish_fold(schedule, step, here, [values[slot] for slot in step.operands])
                    values.update(zip(step.results, results, strict=True))
                case Region():
                    arrays = [values[slot] for slot in step.operands]
                    if step.stages:
                        results = loops.run_pipeline(step, here, arrays, run_steps)
                    else:
                        results = run_region(step, schedule, here, arrays, run_steps)
                    values.update(zip(step.results, results, strict=True))
                case Repeat():
                    results = _repeat(step, here, [values[slot] for slot in step.operands])
                    values.update(zip(step.results, results, strict=True))


def _without_cells(slot: Slot) -> Any:
    return vary(jnp.zeros(slot.local_shape, slot.type.dtype), sorted(slot.varying))


def _run(schedule: Schedule, step: Run, here: Here, arrays: list[Any]) -> list[Any]:
    run = partial(run_operation, schedule, step, here)
    return (gathering(run, step.gathers, here) if step.gathers else run)(arrays)


def run_operation(schedule: Schedule, step: Run, here: Here, arrays: Sequence[Any]) -> list[Any]:
    """Run one operation on one device's blocks."""
    cuts, whole = dict(step.cuts), schedule.graph.shaped(step.node)
    sizes = local_sizes(whole, cuts)
    count = len(schedule.graph.nodes[step.node].operands)
    arrays, before = arrays[:count], list(arrays[count:])
    whole = answering(whole, arrays, cuts)
    written = is_written(whole, arrays)
    of_box = partial(device_kernels, whole, cuts, is_written=written, around=_around(whole, cuts, arrays))
    shaped = of_box(sizes, step.axes, here.platforms)
    operation = shaped.operation
    if folds_nothing(shaped):
        # What they hold does not matter, and XLA sends what it sees that somebody reads.
        arrays = [jnp.zeros(array.shape, array.dtype) for array in arrays]
    blocks = read_blocks(shaped, cuts, sizes, here, step.axes, arrays)
    folds, scans = bool(fold_axes(shaped, cuts)), operation.over in cuts
    if written:
        blocks = _pulled_as_written(whole, step, here, sizes, arrays, blocks, is_state=folds or scans)
    _check_claims(whole, blocks, cuts, sizes, merged=folds or scans)

    def run(box: Mapping[str, int], blocks: list[Any]) -> list[Any]:
        own = shaped if box == sizes else of_box(box, step.axes, here.platforms)
        if folds:
            return partial_states(own, cuts, box, here, blocks, whole)
        return states(own, blocks) if scans else run_blocks(own, blocks, here.platforms)

    results = on_valid_rows(whole, cuts, sizes, here, blocks, run, states=folds or scans, written=written)
    if folds:
        results = _alike(shaped, blocks, results, _varying(schedule, step))
        if not step.carried:
            results = _merged(shaped, step, here, results)
            results = without_rows_of_nothing(shaped, cuts, here, results)
    elif scans:
        steps = [vary(leaf, sorted(step.axes)) for leaf in results]
        assert operation.over is not None
        cut = cuts[operation.over]
        if step.carried:
            met, begins = here.begun(step.node, cut.axes), here.begins_now(step.node)
            alone = here.finds_total(step.node, cut.axes)
            scanned, after = scan_in_turn(shaped, cut, here, steps, before, met, begins, alone=alone)
            results = [*without_rows_of_nothing(shaped, cuts, here, present(shaped, scanned)), *after]
        else:
            results = present(shaped, scan_over_mesh(shaped, cut, here, steps))
            results = without_rows_of_nothing(shaped, cuts, here, results)
    return _as_stored(schedule, step, results)


def _around(whole: Shaped, cuts: Mapping[str, Cut], arrays: Sequence[Any]) -> Callable[..., Any] | None:
    """What is done to the kernel of a fold that is cut."""
    if cuts.keys().isdisjoint(whole.signature.fold_dims):
        return None
    # Here, not at the top: a library that is imported need not load it.
    from tapestry_jax.lowering.exchange.left_out import left_out

    return partial(left_out, whole, arrays)


def _check_claims(
    whole: Shaped, blocks: Sequence[Any], cuts: Mapping[str, Cut], sizes: Mapping[str, int], *, merged: bool
) -> None:
    """Hold what somebody declares of an operation to what the plan does with it."""
    if merged:
        # Here, not at the top: a library that is imported need not load it.
        from tapestry_jax.lowering.exchange.merging import check_merging

        check_merging(whole, blocks, cuts)
    if whole.operation.dense:
        # As above.
        from tapestry_jax.lowering.on_device.stand_ins import check_stand_ins

        check_stand_ins(whole, blocks, sizes)


def _pulled_as_written(
    whole: Shaped,
    step: Run,
    here: Here,
    sizes: Mapping[str, int],
    arrays: Sequence[Any],
    blocks: list[Any],
    *,
    is_state: bool,
) -> list[Any]:
    """The blocks of a kernel of which somebody wrote a derivative; to take it is an error where it would be false."""
    # Few kernels have one, and to ask of it traces the kernel again.
    from tapestry_jax.lowering.time.once import without_slopes
    from tapestry_jax.lowering.time.transposed import true_of_parts

    cuts = dict(step.cuts)
    if (is_repeated(cuts, here) or has_seams(whole, cuts)) and pulls_otherwise(whole.operation.kernel, blocks):
        blocks = without_slopes(step.path, cuts, blocks, here)
    else:
        blocks = true_of_parts(whole, cuts, sizes, step.path, arrays, blocks, is_state=is_state)
    return asked_for(whole.operation.kernel, blocks, here)


def _varying(schedule: Schedule, step: Run) -> list[frozenset[str]]:
    """For every leaf of a device's state the mesh axes over which it differs."""
    if step.carried:
        return [schedule.slots[slot].varying for slot in step.results]
    graph = schedule.graph
    if len(graph.shaped(step.node).state) == 1:
        # A sum of what no operand decides is rare, and asking takes a thirtieth of lowering a transformer.
        return [step.axes]
    operands = [graph.type_of(ref).struct for ref in graph.nodes[step.node].operands]
    varies = varying_leaves(graph.shaped(step.node), operands, dict(step.cuts), schedule.mesh)
    return [step.axes if each else frozenset() for each in varies]


def _alike(shaped: Shaped, blocks: Sequence[Any], state: list[Any], varying: Sequence[frozenset[str]]) -> list[Any]:
    """The state, whose leaves that are the same on all devices do not vary for JAX either, however they were made."""
    if all(axes or not varying_axes(value_of(leaf)) for leaf, axes in zip(state, varying, strict=True)):
        return state
    # Such a leaf depends on shapes alone, so that any operands give it.
    zeros = [jnp.zeros(block.shape, block.dtype) for block in blocks]
    plain = with_counts(shaped, zeros, states(shaped, zeros))
    return [leaf if axes else own for leaf, own, axes in zip(state, plain, varying, strict=True)]


def finish_fold(schedule: Schedule, step: Finish, here: Here, state: list[Any]) -> list[Any]:
    """Merge the states that loops have added up, and present them; or find what comes before the totals of a scan."""
    shaped = states_on_device(schedule.graph.shaped(step.node))
    if shaped.operation.over is not None:
        before = total_before(shaped, dict(step.cuts)[shaped.operation.over], here, state)
        return _as_stored(schedule, step, before)
    results = without_rows_of_nothing(shaped, dict(step.cuts), here, _merged(shaped, step, here, state))
    return _as_stored(schedule, step, results)


def _merged(shaped: Shaped, step: Run | Finish, here: Here, state: list[Any]) -> list[Any]:
    """One state of all devices from the state of each, presented; or one sum, scattered."""
    cuts = dict(step.cuts)
    folded = in_space(fold_axes(shaped, cuts))
    if folds_nothing(shaped):
        return present(shaped, _of_nothing(shaped, step))
    if step.scatter is not None:
        axis, cut = step.scatter.axis, step.scatter.cut
        padded = pad_axis(vary(state[0], sorted(step.axes)), axis, cut.block * here.size(cut.axes))
        return present(shaped, [received(lax.psum_scatter(padded, folded, scatter_dimension=axis, tiled=True))])
    _, carrier = local_state(shaped, cuts)
    return present(
        shaped, merge_states(shaped, carrier, cuts, folded, here, state) if folded else list(map(value_of, state))
    )


def _of_nothing(shaped: Shaped, step: Run | Finish) -> list[Any]:
    """The state of a fold over nothing, which every device knows without the others."""
    assert shaped.operation.monoid is not None
    like, carrier = local_state(shaped, dict(step.cuts))
    if step.scatter is not None:
        shape = list(like[0].shape)
        shape[step.scatter.axis] = step.scatter.cut.block
        like = [jax.ShapeDtypeStruct(tuple(shape), like[0].dtype)]
    return identity_block(shaped.operation.monoid, shaped.state_tree, carrier, like)


def _as_stored(schedule: Schedule, step: Run | Finish, results: Sequence[Any]) -> list[Any]:
    # A kernel that ignores an operand may return fewer varying axes than its layout has.
    # Extrema that a loop carries on come with their counts.
    pairs = zip(results, step.results, strict=True)
    return [
        jax.tree.map(lambda part, slot=slot: vary(part, sorted(schedule.slots[slot].varying)), result)
        for result, slot in pairs
    ]


def _zeros(array: Any) -> Any:
    return vary(jnp.zeros(array.shape, array.dtype), varying_axes(array))


def _repeat(step: Repeat, here: Here, arrays: Sequence[Any]) -> list[Any]:
    body, count = step.body, step.carries
    carried, rest = body.inputs[:count], body.inputs[count:]
    if not step.length:
        # No turn reads what the loop captures, so that nothing comes back: zeros would be multiplied and sent.
        arrays = [*arrays[:count], *map(lax.stop_gradient, arrays[count:])]
    outside: dict[int, Any] = dict(zip(rest[len(step.axes) :], arrays[count + len(step.axes) :], strict=True))
    stacked: dict[int, Any] = {
        slot: jnp.moveaxis(array, axis, 0)
        for slot, array, axis in zip(rest, arrays[count : count + len(step.axes)], step.axes, strict=False)
    }
    for early in step.prologue:
        place = stacked if early.source in stacked else outside
        place[early.result] = convert(place[early.source], early.changes, here)

    def once(carry: list[Any], slices: dict[int, Any], outside: dict[int, Any]) -> tuple[list[Any], list[Any]]:
        outputs = run_steps(body, {**outside, **slices, **dict(zip(carried, carry, strict=True))}, here)
        return outputs[:count], outputs[count:]

    run = recomputed(once, keeps=bool(step.keeps), rings=step.keeps != RINGS) if step.remat else once

    def turn(carry: list[Any], slices: dict[int, Any]) -> tuple[list[Any], list[Any]]:
        return run(carry, slices, outside)

    if step.until:
        # Few programs have such loops.
        from combinators.numerics.until import run_until

        last = run_until(lambda carry: turn(carry, {})[0], arrays[:count], step.length, step.path)
        # A loop in time around it hands zeros back where nothing is differentiated.
        return [lax.stop_gradient(value) for value in last] if step.stopped else last

    if step.stage is None or step.stage.block * here.size(step.stage.axes) == step.layers:
        # Programs without loops do without all that predicts.
        from tapestry_jax.planning.prediction.flow import unread_starts

        unread = unread_starts(step)
        # XLA keeps what a loop starts from, and all that is sent for it, though the first turn only overwrites it.
        starts = [_zeros(array) if at in unread else array for at, array in enumerate(arrays[:count])]
        final, outputs = scan(turn, starts, stacked, length=step.length)
        return [*final, *outputs]

    # A stage with fewer layers than the others turns on; its padding holds copies of a real layer.
    first = here.index(step.stage.axes) * step.stage.block

    def turn_or_none(carry: list[Any], inputs: tuple[Any, dict[int, Any]]) -> tuple[list[Any], list[Any]]:
        number, slices = inputs
        after, made = turn(carry, slices)
        is_layer = first + number < step.layers
        return [jnp.where(is_layer, new, old) for new, old in zip(after, carry, strict=True)], made

    numbers = jnp.arange(step.length, dtype=jnp.int32)
    final, outputs = scan(turn_or_none, list(arrays[:count]), (numbers, stacked))
    return [*final, *outputs]
