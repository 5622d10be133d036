"""A loop in time that ends in one sum, such as a loss: its gradients are computed turn by turn, in the forward loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.equations.scanned import scan
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from combinators.operations.shaped import block_structs, is_written
from combinators.operations.widening import is_narrower
from tapestry_jax.lowering.exchange.convert import convert
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.lowering.padding.valid import pulls_otherwise
from tapestry_jax.lowering.time.held import held_in_turn
from tapestry_jax.planning.geometry.changes import Slice
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import turns_of
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Run, Schedule
from tapestry_jax.planning.scheduling.summed import gives_a_sum

if TYPE_CHECKING:
    from tapestry_jax.lowering.time.presented import Presented

RunBody = Callable[[Schedule, dict[int, Any], Here], list[Any]]
RunLoop = Callable[[dict[int, Any], Here], list[Any]]


def ends_in_sum(step: Region, schedule: Schedule) -> bool:
    """Whether all that a loop gives is one sum with a derivative, which no turn pulls back in a way of its own.

    A derivative that somebody wrote need not be linear: a turn pulls back a cotangent of one, and scales what comes of
    it. A loop with one that is not is differentiated as others are.
    """
    return gives_a_sum(step, schedule) and not _pulls_otherwise(step.body)


def run_summed(
    step: Region, here: Here, operands: dict[int, Any], known: Presented, run_body: RunBody, run_loop: RunLoop
) -> list[Any]:
    """The sums of all turns.

    Differentiating the loop would store, or compute again, what a turn needs for its backward pass. But the gradient
    of a sum by its turns is the sum of their gradients: the rule below computes a turn's value and gradient together.

    The cotangent of the sum is not known yet then, so that gradients are taken with the slope of what is presented, and
    scaled afterwards by what is missing: nothing, where the loss itself is what is differentiated. That gives the same
    only where no float on the way is too narrow for it: a gradient of 1e-8 is zero in float16 and stays so, whatever
    it is scaled by. A turn with such a float is recomputed in the backward pass, as other loops are.

    Args:
      step: a loop that `ends_in_sum`.
      here: the device, outside the loop.
      operands: by slot of the body, padded to whole chunks.
      known: of the sums, before the loop runs.
      run_body: runs a schedule.
      run_loop: the loop as it is run and differentiated where it does not end in a sum.
    """
    loop = _Summed(step, tuple(operands), here, known, run_body)
    names = tuple(here.counters)

    @jax.custom_jvp
    def total(arrays: list[Any], counters: list[Any]) -> list[Any]:
        return loop.values(arrays, here.at(dict(zip(names, counters, strict=True))))

    @total.defjvp
    def _(primals: tuple[list[Any], list[Any]], tangents: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        # Here, not at the top: few programs have such loops.
        from combinators.declared.range import keeps_range
        from tapestry_jax.lowering.on_device.traced import traced

        arrays, counters = primals

        def at(counters: list[Any]) -> Here:
            return here.at(dict(zip(names, counters, strict=True)))

        # It is given the counters, and reads none from around: a second derivative runs it when these are gone.
        together = traced(lambda given, counters: loop.values_and_gradients(given, at(counters)), arrays, counters)
        if not keeps_range(together.jaxpr):
            # Only the operands have tangents: counters are integers.
            return jax.jvp(
                lambda given: run_loop(dict(zip(operands, given, strict=True)), at(counters)), (arrays,), tangents[:1]
            )
        sums, gradients = _undivided(together)(arrays, counters)
        sums = loop.counted(sums)
        return sums, [loop.tangent(leaf, gradients, tangents[0]) for leaf in sums]

    return total(list(operands.values()), list(here.counters.values()))


@dataclass(frozen=True)
class _Summed:
    step: Region
    slots: tuple[int, ...]
    here: Here
    known: Presented
    run_body: RunBody

    @property
    def slices(self) -> list[Convert]:
        """The steps that take a turn's chunk of an operand."""
        return [
            step
            for step in self.step.body.steps
            if isinstance(step, Convert)
            and step.source in self.slots
            and all(isinstance(c, Slice) and c.cut == Cut((self.step.axis,), c.cut.block) for c in step.changes)
        ]

    @property
    def rest(self) -> Schedule:
        """The body without its slices."""
        taken = {step.result for step in self.slices}
        steps = [step for step in self.step.body.steps if not (isinstance(step, Convert) and step.result in taken)]
        return replace(self.step.body, steps=tuple(steps))

    def values(self, arrays: list[Any], here: Here) -> list[Any]:
        """The sums alone."""
        given = dict(zip(self.slots, arrays, strict=True))

        def turn(sums: list[Any], counter: Any) -> tuple[list[Any], None]:
            at = here.turning(self.step.axis, counter)
            return self._added(sums, self.run_body(self.step.body, dict(given), at)), None

        return self._loop(turn, self._zero())

    def values_and_gradients(self, arrays: list[Any], here: Here) -> tuple[list[Any], list[Any]]:
        """The sums, and the gradient of what is made of the smooth one by every operand (None by those without one)."""
        operands = dict(zip(self.slots, arrays, strict=True))
        slices, body = self.slices, self.rest
        wanted = _read(body)
        shared = [slot for slot, array in operands.items() if slot in wanted and is_inexact(array.dtype)]
        cut = [step for step in slices if is_inexact(operands[step.source].dtype)]

        def turn(carry: Any, counter: Any) -> tuple[Any, None]:
            sums, added, placed = carry
            at = here.turning(self.step.axis, counter)
            given = held_in_turn(body, operands, counter)
            chunks = {step.result: convert(given[step.source], step.changes, at) for step in slices}
            own = {step.result: chunks[step.result] for step in cut}

            def run(shared: dict[int, Any], own: dict[int, Any]) -> tuple[Any, list[Any]]:
                leaves = self.run_body(body, {**given, **chunks, **shared, **own}, at)
                return next(leaf for leaf in leaves if is_inexact(leaf.dtype)), leaves

            value, pull, leaves = jax.vjp(run, {slot: given[slot] for slot in shared}, own, has_aux=True)
            by_shared, by_own = pull(vary(jnp.full((), self.known.slope, value.dtype), sorted(varying_axes(value))))
            added = {slot: added[slot] + by_shared[slot].astype(added[slot].dtype) for slot in shared}
            placed = {step.result: _put(placed[step.result], by_own[step.result], step, at) for step in cut}
            return (self._added(sums, leaves), added, placed), None

        start = {slot: _zeros(operands[slot], _wide(operands[slot].dtype)) for slot in shared}
        places = {step.result: _zeros(operands[step.source]) for step in cut}
        sums, added, placed = self._loop(turn, (self._zero(), start, places))
        gradients: list[Any] = []
        for slot in self.slots:
            parts = [added[slot].astype(operands[slot].dtype)] if slot in added else []
            parts += [placed[step.result] for step in cut if step.source == slot]
            gradients.append(sum(parts[1:], parts[0]) if parts else None)
        return sums, gradients

    def tangent(self, leaf: Any, gradients: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """How a sum changes along `tangents` of the operands."""
        if not is_inexact(leaf.dtype):
            # The one way to a zero of the tangent type of a varying integer.
            return jax.jvp(lambda _: leaf, (0.0,), (0.0,))[1]
        total = jnp.zeros_like(leaf)
        for gradient, tangent in zip(gradients, tangents, strict=True):
            if gradient is not None:
                # Its transpose then scales in the precision of the sum, and rounds once.
                kind = jnp.promote_types(gradient.dtype, leaf.dtype)
                part = jnp.sum(gradient.astype(kind) * tangent.astype(kind)).astype(leaf.dtype)
                # What lies in pieces on devices that have the same sum contributes piece by piece.
                pieces = tuple(sorted(varying_axes(part) - varying_axes(leaf)))
                part = lax.psum(part, pieces) if pieces else part
                total = total + vary(part, sorted(varying_axes(leaf)))
        return total / jnp.asarray(self.known.slope, total.dtype)

    def counted(self, sums: Sequence[Any]) -> list[Any]:
        """The sums, in which what is known without the loop is a number for the compiler too."""
        known = self.known.counts
        return [
            vary(jnp.asarray(known[place], leaf.dtype), sorted(varying_axes(leaf))) if place in known else leaf
            for place, leaf in enumerate(sums)
        ]

    def _loop(self, turn: Callable[[Any, Any], Any], start: Any) -> Any:
        return scan(turn, start, jnp.arange(turns_of(self.step.axis), dtype=jnp.int32))[0]

    def _zero(self) -> list[Any]:
        found = [self.step.body.slots[slot] for slot in self.step.body.outputs]
        return [vary(jnp.zeros((), slot.type.dtype), sorted(slot.varying)) for slot in found]

    def _added(self, sums: list[Any], leaves: list[Any]) -> list[Any]:
        return [total + vary(leaf, sorted(varying_axes(total))) for total, leaf in zip(sums, leaves, strict=True)]


def _pulls_otherwise(body: Schedule) -> bool:
    for step in body.steps:
        if isinstance(step, (Region, Repeat)) and _pulls_otherwise(step.body):
            return True
        if isinstance(step, Run):
            shaped, count = body.graph.shaped(step.node), len(body.graph.nodes[step.node].operands)
            kinds = [body.slots[slot].type for slot in step.operands[:count]]
            types = [jax.ShapeDtypeStruct(kind.shape, kind.dtype) for kind in kinds]
            if is_written(shaped, types):
                blocks = block_structs(shaped.signature, types, shaped.sizes)
                if pulls_otherwise(shaped.operation.kernel, blocks):
                    return True
    return False


def _undivided(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The same, of which JAX moves nothing out of its turns.

    Where a loop stands in a program that is differentiated, JAX computes before it what no turn changes, even the
    zeros that a gradient is scattered into: an array of a chunk's size then lies beside the loop and is added in every
    turn. This loop has its gradients already, and is differentiated by nothing but a second derivative.
    """

    @jax.custom_jvp
    def run(arrays: list[Any], counters: list[Any]) -> Any:
        return loop(arrays, counters)

    run.defjvp(lambda primals, tangents: jax.jvp(loop, primals, tangents))
    return run


def _read(body: Schedule) -> set[int]:
    """The slots that the steps of a schedule read."""
    read = {step.source for step in body.steps if isinstance(step, Convert)}
    return read.union(*(step.operands for step in body.steps if not isinstance(step, Convert)))


def _zeros(array: Any, dtype: Any = None) -> Any:
    return vary(jnp.zeros(array.shape, dtype or array.dtype), sorted(varying_axes(array)))


def _wide(dtype: Any) -> Any:
    """The dtype in which turns are added up, as those of a fold are: a sum in bfloat16 stands still after some."""
    return jnp.dtype(jnp.float32) if is_narrower(dtype, jnp.float32) else dtype


def _put(whole: Any, chunk: Any, step: Convert, here: Here) -> Any:
    """Write the gradient of a chunk where the chunk was taken."""
    starts = [jnp.int32(0)] * whole.ndim
    for change in step.changes:
        assert isinstance(change, Slice)
        starts[change.axis] = here.index(change.cut.axes) * change.cut.block
    return lax.dynamic_update_slice(whole, chunk.astype(whole.dtype), starts)
