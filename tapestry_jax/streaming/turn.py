"""The programs of a stream: what stands between passes, what a pass begins with, and one turn of it.

Each is one jitted `shard_map`, whose body runs steps of the schedule as they run on the device. What crosses programs
is one global array for every slot. A state differs from device to device although no axis of it is cut: such arrays
have an axis more, in front, along which the devices lie. Parts that differ in the slots around them alone, as the turns
of a repetition do, are one program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from combinators.frozen import dataclass
from combinators.graphs.computed import program_text
from combinators.graphs.evaluate import check_unchanged
from tapestry_jax.lowering.on_device.attained import value_of
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.lowering.padding.valid import is_torn
from tapestry_jax.lowering.program import run_steps
from tapestry_jax.lowering.time.carried import Carried
from tapestry_jax.lowering.time.region import padded_operands
from tapestry_jax.planning.geometry.time_axis import in_space, spread
from tapestry_jax.planning.refining.written_out import moved_step
from tapestry_jax.planning.scheduling.schedule import Schedule, Slot
from tapestry_jax.streaming.known import Functions
from tapestry_jax.streaming.parts import Between, Ending, Part, Pass, Split

Arrays = list[Any]


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of one stream on one mesh.

    Attributes:
      split: passes, and what stands between them.
      mesh: with devices.
      functions: that were jitted for another job of the same program.
    """

    split: Split
    mesh: Any
    functions: Functions = field(default_factory=dict[Any, Any], repr=False)
    _known: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)

    @property
    def schedule(self) -> Schedule:
        """All of it."""
        return self.split.schedule

    @cached_property
    def here(self) -> Here:
        """A device outside of all loops."""
        parts = {id(inside): inside for part in self.split.parts if (inside := _inside(part)) is not None}
        torn = any(map(is_torn, parts.values()))
        return Here(self.schedule.mesh.axes, platforms=self.schedule.platforms, torn=torn, goes_on=True)

    def between(self, part: Between) -> Any:
        """The steps between passes, compiled: from the values that they read to those that are read later."""
        key = replace(part, part=_numbered_anew(part.part), scope="")
        if key not in self._known:
            slots = [key.part.slots[slot] for slot in key.part.inputs]
            self._known[key] = self._compiled(key, self._between(key), list(map(self.struct, slots)))
        return self._known[key]

    def temporaries(self, part: Between | Pass) -> int:
        """Bytes that the compiler sets aside on every device while a part, or a turn of it, runs."""
        if isinstance(part, Pass):
            self.first(part)
        analysis = (self.between(part) if isinstance(part, Between) else self.turn(part)).memory_analysis()
        return int(analysis.temp_size_in_bytes) if analysis is not None else 0

    def _between(self, part: Between) -> Any:
        inside = part.part

        def run(values: Arrays) -> Arrays:
            made = run_steps(inside, dict(zip(inside.inputs, values, strict=True)), self.here)
            return list(map(value_of, made))

        slots = inside.slots
        return self._jitted(run, [slots[slot] for slot in inside.inputs], [slots[slot] for slot in inside.outputs])

    def first(self, part: Pass) -> Callable[..., Arrays]:
        """What a pass carries before its first turn, from the first totals of its scans; compiled."""
        key = self._key("first", part)
        if key not in self._known:
            carried = Carried.of(part.region, part.region.body)
            starts = self._starts(part)
            jitted = self._jitted(lambda given: list(map(value_of, carried.first(given))), starts, carried.slots)
            self._known[key] = self._compiled(("first", _alone(part)), jitted, list(map(self.struct, starts)))
        return self._known[key]

    def turn(self, part: Pass) -> Any:
        """One turn, compiled: from (carried, operands, pieces, number, since, older) to (carried, made, still, done).

        `since` is the first of the turns that are carried, `older` whether an older run is carried in front of them.

        What is carried is given away: its memory becomes that of the result. `done` is there when the turn is done.
        """
        key = self._key("turn", part)
        if key not in self._known:
            self._known[key] = self._turn(part)
        return self._known[key]

    def merged(self, part: Pass, least: tuple[int, int]) -> Callable[[Sequence[Any], Sequence[Any]], Arrays]:
        """From what a pass carries after some turns, and after those behind them alone, to what it does after all.

        Args:
          part: the pass; of its scans nothing is merged.
          least: of both, the number of the lowest turn.
        """
        key = self._key("merged", part)
        if key not in self._known:
            carried = Carried.of(part.region, part.region.body)
            count = carried.folded
            self._known[key] = self._jitted(
                lambda both, *least: carried.joined(both[:count], both[count:], self.here, least),
                [*carried.slots[:count]] * 2,
                carried.slots[:count],
                numbers=2,
            )
        return lambda first, second: self._known[key]([*first, *second], *map(np.int32, least))

    def behind(self, part: Pass, number: int) -> Callable[[Sequence[Any], Sequence[Any], bool], Arrays]:
        """From the total of one of the scans of a pass after some turns, and after those behind them alone, to both.

        The last argument says whether the first of these turns hold something.
        """
        key, carried = (self._key("behind", part), number), Carried.of(part.region, part.region.body)
        begin = carried.folded + sum(leaves for _, leaves in part.region.scans[:number])
        count = part.region.scans[number][1]
        slots = carried.slots[begin : begin + count]
        if key not in self._known:
            self._known[key] = self._jitted(
                lambda both, there: carried.behind(number, both[:count], both[count:], there),
                [*slots] * 2,
                slots,
                numbers=1,
            )
        return lambda before, own, there: self._known[key]([*before, *own], np.bool_(there))

    def _turn(self, part: Pass) -> Any:
        region, body, carried = part.region, part.region.body, Carried.of(part.region, part.region.body)
        pieces = [as_read(body.slots[piece.slot]) for piece in part.pieces]
        given = [body.slots[slot] for slot in body.inputs[: part.entering]]
        made, still = ([body.slots[each.slot] for each in kind] for kind in (part.made, part.still))
        wanted = (*body.outputs[: len(carried.slots)], *(each.slot for each in (*part.made, *part.still)))
        body = replace(body, outputs=wanted)
        region = replace(region, body=body)
        count = len(carried.slots)

        def run(state: Arrays, operands: Arrays, parts: Arrays, number: Any, *begun: Any) -> tuple[Arrays, ...]:
            values = padded_operands(region, operands) | carried.entering(state)
            for piece, array in zip(part.pieces, parts, strict=True):
                values[piece.slot] = vary(array, sorted(body.slots[piece.slot].varying))
            since, older = begun
            here = replace(self.here, older=older, since=dict.fromkeys(part.anew, (region.axis, since)))
            # How many elements attain an extremum matters to its gradient alone.
            outputs = list(map(value_of, run_steps(body, values, carried.turning(here, number))))
            rest = outputs[count:]
            return carried.after(state, outputs, here, number, since), rest[: len(made)], rest[len(made) :]

        def on_device(state: Arrays, operands: Arrays, parts: Arrays, number: Any, *begun: Any) -> tuple[Any, ...]:
            results = run(
                _opened(carried.slots, state), _opened(given, operands), _opened(pieces, parts), number, *begun
            )
            closed = (_closed(s, arrays) for s, arrays in zip((carried.slots, made, still), results, strict=True))
            return *closed, number + 1

        specs = [_specs(kind) for kind in (carried.slots, given, pieces)]
        sharded = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(*specs, *[PartitionSpec()] * 3),
            out_specs=(specs[0], _specs(made), _specs(still), PartitionSpec()),
            check_vma=True,
        )
        made_as = [list(map(self.sharding, kind)) for kind in (carried.slots, made, still)]
        shardings = (*made_as, NamedSharding(self.mesh, PartitionSpec()))
        jitted = jax.jit(sharded, donate_argnums=0, out_shardings=shardings)
        structs = [list(map(self.struct, kind)) for kind in (carried.slots, given, pieces)]
        begun = [jax.ShapeDtypeStruct((), kind) for kind in (jnp.int32, jnp.int32, jnp.bool_)]
        return self._compiled(_alone(part), jitted, *structs, *begun)

    def _key(self, what: str, part: Pass) -> Hashable:
        """What the passes have in common that run one program: their turns, and what they begin with."""
        return what, id(part.region.body), tuple(self._starts(part))

    def _starts(self, part: Pass) -> list[Slot]:
        """What the scans of a pass go on from."""
        return [self.schedule.slots[slot] for slot in part.region.operands[part.entering :]]

    def _compiled(self, key: Any, jitted: Any, *structs: Any) -> Any:
        """A part, compiled; not again where a function that was jitted for another job computes the same.

        It is traced in any case: kernels may read what has changed since, which no key of a program tells.
        """
        check_unchanged(self.schedule.graph)
        traced = jitted.trace(*structs)
        told = program_text(traced.jaxpr)
        known = self.functions.get(key)
        if known is not None and known[0] == told:
            # JAX keeps what it traced for a function also where nobody has that function any more. (0.10.2 lets go of
            # what it noted of all functions then; what it has compiled of them stays, and is called as before.)
            jitted.clear_cache()
            return known[1].lower(*structs).compile()
        self.functions[key] = told, jitted
        return traced.lower().compile()

    def sharding(self, slot: Slot) -> NamedSharding:
        """Where the array of a slot lies."""
        return NamedSharding(self.mesh, spec_of(slot))

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """The shape of the array of a slot: all pieces, side by side."""
        mesh = self.schedule.mesh
        spaces = [() if cut is None else in_space(cut.axes) for cut in slot.layout.cuts]
        own = [extent * mesh.size(axes) for extent, axes in zip(slot.local_shape, spaces, strict=True)]
        return tuple([mesh.size(extra(slot)), *own] if extra(slot) else own)

    def struct(self, slot: Slot) -> jax.ShapeDtypeStruct:
        """The array of a slot, as a type."""
        return jax.ShapeDtypeStruct(self.shape(slot), slot.type.dtype, sharding=self.sharding(slot))

    def _jitted(
        self, run: Callable[..., Arrays], inputs: Sequence[Slot], outputs: Sequence[Slot], *, numbers: int = 0
    ) -> Any:
        """A program from the arrays of `inputs`, and some numbers that all devices are told, to those of `outputs`."""

        def on_device(arrays: Arrays, *told: Any) -> Arrays:
            return _closed(outputs, run(_opened(inputs, arrays), *told))

        sharded = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(_specs(inputs), *[PartitionSpec()] * numbers),
            out_specs=_specs(outputs),
            check_vma=True,
        )
        return jax.jit(sharded, out_shardings=list(map(self.sharding, outputs)))


def _inside(part: Part) -> Schedule | None:
    match part:
        case Pass():
            return part.region.body
        case Between():
            return part.part
        case Ending():
            return None


def _alone(part: Pass) -> Pass:
    """A pass without the slots around it."""
    region = replace(part.region, operands=(), results=())
    pieces, made, still = (
        tuple(replace(each, value=0) for each in kind) for kind in (part.pieces, part.made, part.still)
    )
    return replace(part, region=region, pieces=pieces, made=made, still=still)


def _numbered_anew(part: Schedule) -> Schedule:
    """The same steps in slots that are numbered as they come."""
    read = (slot for step in part.steps for slot in (*step.operands, *step.results))
    moved = {slot: number for number, slot in enumerate(dict.fromkeys((*part.inputs, *read)))}
    inputs, outputs = (tuple(moved[slot] for slot in kind) for kind in (part.inputs, part.outputs))
    slots, steps = (part.slots[slot] for slot in moved), (moved_step(step, moved) for step in part.steps)
    return replace(part, slots=tuple(slots), inputs=inputs, steps=tuple(steps), outputs=outputs)


def as_read(slot: Slot) -> Slot:
    """The slot of a piece as it comes from the host: the same on devices that hold the same cells."""
    return replace(slot, varying=spread(slot.layout.axes))


def extra(slot: Slot) -> tuple[str, ...]:
    """The mesh axes over which a value varies although they cut none of its axes."""
    return tuple(sorted(slot.varying - spread(slot.layout.axes)))


def spec_of(slot: Slot) -> PartitionSpec:
    """How the array of a slot lies on the mesh."""
    own = [None if cut is None else in_space(cut.axes) or None for cut in slot.layout.cuts]
    return PartitionSpec(*([extra(slot)] if extra(slot) else []), *own)


def _specs(slots: Sequence[Slot]) -> list[PartitionSpec]:
    return list(map(spec_of, slots))


def _opened(slots: Sequence[Slot], arrays: Sequence[Any]) -> Arrays:
    """Pieces as steps know them."""
    inside = (array[0] if extra(slot) else array for slot, array in zip(slots, arrays, strict=True))
    return [vary(array, sorted(slot.varying)) for slot, array in zip(slots, inside, strict=True)]


def _closed(slots: Sequence[Slot], arrays: Sequence[Any]) -> Arrays:
    pairs = ((slot, vary(array, sorted(slot.varying))) for slot, array in zip(slots, arrays, strict=True))
    return [array[jnp.newaxis] if extra(slot) else array for slot, array in pairs]
