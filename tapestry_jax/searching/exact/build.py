"""From a program to its factored model: what the schedule will do with every choice, without making one.

The schedule of the same program that cuts nothing is walked. It has all that does not depend on placements: the order,
the loops, what is computed again, and which values gradients flow through.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from combinators.frozen import changed
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.geometry.layout import Layout, dense_bytes, true_layout
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.prediction.flow import Flow, flow_of_body
from tapestry_jax.planning.pricing.converted import converting_bytes, is_converted
from tapestry_jax.planning.pricing.overlapped import share_of_layers
from tapestry_jax.planning.scheduling.reads import operand_layouts
from tapestry_jax.planning.scheduling.schedule import Repeat, Run, Schedule, Slot
from tapestry_jax.searching.exact.classes import classes
from tapestry_jax.searching.exact.homes import (
    Chosen,
    DoesNotFitError,
    Home,
    Known,
    NotModelledError,
    Option,
    Reading,
    Scope,
)
from tapestry_jax.searching.exact.model import Model, Value
from tapestry_jax.searching.exact.operations import Operations
from tapestry_jax.searching.exact.picks import Picks
from tapestry_jax.searching.exact.placements import even_layouts, placements
from tapestry_jax.searching.exact.prices import Prices, Want
from tapestry_jax.searching.exact.units import Units
from tapestry_jax.searching.exact.values import times_alike, value_between


class Builder:
    """Collects picks and values, scope by scope."""

    def __init__(self, prices: Prices, placer: Placer, inputs: dict[int, Layout], outputs: dict[int, Layout]) -> None:
        self.prices, self.mesh, self.placer = prices, prices.mesh, placer
        self.inputs, self.outputs = inputs, outputs
        self.picks = Picks()
        self._operations = Operations(prices, placer, outputs, self.picks)
        self._groups = 0
        self._values: dict[Any, tuple[Value, int]] = {}
        self._classes: dict[Any, Known] = {}
        # Values are known by the identity of their homes, which have to live as long.
        self._between: list[tuple[Scope, int, Home, list[Reading]]] = []

    def model(self, schedule: Schedule, flow: Flow, memory: float = math.inf) -> Model:
        """The model of a program whose schedule cuts nothing.

        Args:
          schedule: that one.
          flow: in it.
          memory: bytes of a device.

        Raises:
          NotModelledError: for what the model does not know.
          DoesNotFitError: where picks alone hold more, whatever is chosen; what lies between them is not looked at.
        """
        scope = Scope(schedule, flow, classes=classes(schedule, flow, self._apart(schedule)))
        homes: dict[int, Home] = {}
        known: dict[int, Home] = {}
        for position, slot in enumerate(schedule.inputs):
            kind = scope.classes.inputs[position]
            if kind not in known:
                known[kind] = self._input(scope, position, slot)
            else:
                self.picks.once_more(known[kind].pick, schedule.graph.inputs[position].name)
            homes[slot] = known[kind]
        self._walk(scope, homes)
        if (least := self.picks.least_held()) > memory:
            raise DoesNotFitError(least)
        room = memory - self.picks.least_given()
        for between in self._between:
            self._add_value(*between, room)
        values = tuple(times_alike(*value) for value in self._values.values())
        return Model(self.picks.made(), values, together=dict(self.prices.latencies))

    def _apart(self, schedule: Schedule) -> frozenset[int]:
        """Steps and inputs whose placement the user fixed by path or name."""
        scopes = [scope for scope, _ in self.placer.ops]
        steps = {
            number
            for number, step in enumerate(schedule.steps)
            if any(step.path == scope or step.path.startswith(f"{scope}/") for scope in scopes)
        }
        return frozenset(steps | {len(schedule.steps) + position for position in self.inputs})

    # Arguments

    def _input(self, scope: Scope, position: int, slot: int) -> Home:
        schedule = scope.schedule
        kind, name = schedule.slots[slot].type, schedule.graph.inputs[position].name
        fixed = self.inputs.get(position)
        named = [label is not None and kind.names.count(label) == 1 for label in kind.names]
        layouts = [fixed] if fixed is not None else even_layouts(kind.shape, named, self.mesh, self.prices.axes)
        turns = _turns_of(schedule, slot)
        layouts = [layout for layout in layouts if all(layout.cuts[at] is None for at in turns)]
        copies = 1 + (has_gradient := scope.flow.carries_gradient(slot))
        early = 1 + (has_gradient and not _is_lent(scope, slot))
        sizes = [float(schedule.slots[slot].bytes_in(layout)) for layout in layouts]
        options = tuple(Option(layout=layout) for layout in layouts)
        held, after = ([each * size for size in sizes] for each in (early, copies))
        pick = self.picks.pick(Chosen("input", (name,), options), [0.0] * len(layouts), held, after=after)
        return Home(pick, tuple(layouts), given=True)

    # Scopes

    def _walk(self, scope: Scope, homes: dict[int, Home]) -> None:
        schedule = scope.schedule
        readings: dict[int, list[Reading]] = {}
        uses = Counter(slot for step in schedule.steps for slot in step.operands)
        uses.update(schedule.outputs)
        own = Units.of(scope)
        for number, step in enumerate(schedule.steps):
            match step:
                case Run():
                    self._run_once(own.of_step(number), number, step, homes, readings, uses)
                case Repeat():
                    self._repeat(scope, step, homes, readings)
                case _:
                    raise NotModelledError(f"{type(step).__name__} at {step.path}")
        if scope.loop is None:
            self._leave(scope, homes)
        else:
            self._come_round(scope, scope.loop, homes, readings)
        for slot, found in readings.items():
            self._between.append((own.of_slot(slot), slot, homes[slot], found))

    def _come_round(
        self, scope: Scope, loop: Repeat, homes: dict[int, Home], readings: dict[int, list[Reading]]
    ) -> None:
        """What a loop carries comes out of a turn as it goes into the next one: as the first reads it there."""
        schedule = scope.schedule
        for slot in schedule.inputs[: loop.carries]:
            if slot in readings:
                readings[slot][0] = replace(readings[slot][0], same=True)
        for number in range(loop.carries):
            slot, carry = schedule.outputs[number], homes[schedule.inputs[number]]
            smooth = scope.flow.carries_gradient(slot)
            wants = tuple(Want(layout, spread(layout.axes), smooth) for layout in carry.layouts)
            readings.setdefault(slot, []).append(Reading(carry.pick, wants, leaves=True))

    def _leave(self, scope: Scope, homes: dict[int, Home]) -> None:
        """Results leave in true layouts, or as they were asked for."""
        schedule = scope.schedule
        leaving = {(slot, self.outputs.get(position)): None for position, slot in enumerate(schedule.outputs)}
        for slot, asked in leaving:
            home, kind = homes[slot], schedule.slots[slot].type
            smooth = scope.flow.carries_gradient(slot)
            for at, layout in enumerate(home.layouts):
                target = asked or true_layout(layout.in_blocks, kind.shape, self.mesh)
                want = Want(target, spread(target.axes), smooth)
                size = schedule.outputs.count(slot) * schedule.slots[slot].bytes_in(target)
                self.picks.add(home.pick, at, self.prices.change(kind, layout, want), size)

    # Operations

    def _run_once(
        self,
        scope: Scope,
        number: int,
        step: Run,
        homes: dict[int, Home],
        readings: dict[int, list[Reading]],
        uses: Counter[int],
    ) -> None:
        """An operation, or another one of its class."""
        key = id(scope.schedule), scope.classes.steps[number]
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = self._operations.modelled(scope, step, homes, uses)
        else:
            self.picks.once_more(known.homes[0].pick, step.path)
        homes.update(zip(step.results, known.homes, strict=True))
        for slot, reading in zip(step.operands, known.readings, strict=True):
            readings.setdefault(slot, []).append(changed(reading))

    # Loops

    def _repeat(self, scope: Scope, step: Repeat, homes: dict[int, Home], readings: dict[int, list[Reading]]) -> None:
        if step.stage is not None or step.prologue:
            raise NotModelledError(f"stages at {step.path}")
        smooth = any(map(scope.flow.carries_gradient, step.results))
        inner_flow, body = flow_of_body(step, scope.flow), step.body
        # Behind what loops in it compute there is room that is not counted: all passes there.
        counted = not any(isinstance(each, Repeat) for each in body.steps)
        self._groups += 1
        inner = Scope(
            body,
            inner_flow,
            scope.times * step.length,
            scope.times,
            scope.again + (step.remat and smooth),
            step,
            classes(body, inner_flow),
            scope.turns if step.remat else scope.turns * step.length,
            max(scope.received, scope.turns * step.remat) * step.length,
            self._groups if counted else None,
            share_of_layers(step.length) if counted else 0.0,
            frozenset(body.inputs[step.carries : step.carries + len(step.axes)]),
        )
        inside: dict[int, Home] = {}
        for position, (operand, slot) in enumerate(zip(step.operands, body.inputs, strict=True)):
            if position < step.carries:
                inside[slot] = self._carry(inner, step, position)
                home = inside[slot]
                wants = tuple(
                    Want(layout, spread(layout.axes), scope.flow.carries_gradient(operand)) for layout in home.layouts
                )
                readings.setdefault(operand, []).append(Reading(home.pick, wants))
            elif position - step.carries < len(step.axes):
                home, at = homes[operand], step.axes[position - step.carries]
                if is_converted(body, inner.flow, position, self.prices.machine):
                    self._converts(scope, home, operand)
                inside[slot] = self._slice(scope, step, home, operand, at)
            else:
                outer = homes[operand]
                inside[slot] = Home(outer.pick, outer.layouts, constant=True, given=outer.given)
        self._walk(inner, inside)
        for number, slot in enumerate(step.results):
            if number < step.carries:
                outer = inside[body.inputs[number]]
                homes[slot] = Home(outer.pick, outer.layouts)
            else:
                made = inside[body.outputs[number]]
                homes[slot] = Home(made.pick, tuple(Layout((None, *each.cuts)) for each in made.layouts))

    def _carry(self, scope: Scope, loop: Repeat, position: int) -> Home:
        """What a loop carries lies as the first that reads it in a turn wants it."""
        schedule, flow = scope.schedule, scope.flow
        slot = schedule.inputs[position]
        layouts = self._first_reads(schedule, slot)
        bandwidth, known = self.prices.machine.streams, schedule.slots[slot]
        kept = flow.carries_gradient(slot)
        sizes = [known.bytes_in(layout) for layout in layouts]
        seconds = [scope.times * 2.0 * size / bandwidth if kept else 0.0 for size in sizes]
        turns = scope.turns * loop.length if loop.remat else scope.turns
        held = [float(turns * size) if kept and loop.remat else 0.0 for size in sizes]
        options = tuple(Option(layout=layout) for layout in layouts)
        return Home(
            self.picks.pick(Chosen("carry", (f"{loop.path}/{position}",), options), seconds, held), tuple(layouts)
        )

    def _first_reads(self, schedule: Schedule, slot: int) -> list[Layout]:
        kind = schedule.slots[slot].type
        for step in schedule.steps:
            if slot not in step.operands:
                continue
            place = step.operands.index(slot)
            if isinstance(step, Run):
                node, shaped = schedule.graph.nodes[step.node], schedule.graph.shaped(step.node)
                assert isinstance(node, Apply)
                found = (
                    operand_layouts(shaped, cuts)[place].stored(kind.shape, self.mesh)
                    for cuts in placements(node, shaped, step.path, self.placer, self.prices.axes)
                )
                return list(dict.fromkeys(found))
            if isinstance(step, Repeat) and place < step.carries:
                return self._first_reads(step.body, step.body.inputs[place])
            raise NotModelledError(f"a loop that reads what another carries, at {step.path}")
        return [Layout.whole(kind.ndim)]

    def _converts(self, scope: Scope, home: Home, operand: int) -> None:
        """What is converted before the loop, once for all loops around."""
        known = scope.schedule.slots[operand]
        for option, layout in enumerate(home.layouts):
            size = converting_bytes(known.bytes_in(layout))
            self.picks.add(home.pick, option, size / self.prices.machine.streams)

    def _slice(self, scope: Scope, loop: Repeat, home: Home, operand: int, at: int) -> Home:
        kind = scope.schedule.slots[operand].type
        inside: list[Layout] = []
        for option, layout in enumerate(home.layouts):
            free = layout.with_cut(at, None)
            if free != layout:
                want = Want(free, spread(free.axes), scope.flow.carries_gradient(operand))
                self.picks.add(home.pick, option, scope.times * self.prices.change(kind, layout, want))
            inside.append(Layout(free.cuts[:at] + free.cuts[at + 1 :]))
        return Home(home.pick, tuple(inside), loop=loop.length, given=home.given)

    def _add_value(self, scope: Scope, slot: int, home: Home, readings: list[Reading], room: float) -> None:
        """A value, or another one that is alike: of the same makers and the same readers."""
        kind = scope.schedule.slots[slot].type
        alike = (
            id(scope.schedule),
            id(home),
            kind,
            scope.again,
            tuple((each.pick, each.place, each.same) for each in readings),
        )
        known = self._values.get(alike)
        value = known[0] if known is not None else value_between(self.prices, scope, slot, home, readings, room)
        self._values[alike] = value, 1 if known is None else known[1] + 1


def _is_lent(scope: Scope, slot: int) -> bool:
    """Whether what is kept may lie where the gradient of an argument is written in the end, as large as it may be.

    Loops write gradients all along, and in the place of a smaller one nothing fits.
    """
    slots, made = scope.schedule.slots, [0]
    for step in scope.schedule.steps:
        if isinstance(step, Run):
            made += (_bytes(slots[each]) for each in step.results if scope.flow.carries_gradient(each))
        elif slot in step.operands:
            return False
    return _bytes(slots[slot]) >= max(made)


def _bytes(slot: Slot) -> int:
    return dense_bytes(math.prod(slot.type.shape), slot.type.dtype)


def _turns_of(schedule: Schedule, slot: int) -> set[int]:
    """The axes of an argument along which the turns of a loop take slices: every device runs all of them."""
    return {
        at
        for step in schedule.steps
        if isinstance(step, Repeat)
        for operand, at in zip(step.operands[step.carries :], step.axes, strict=False)
        if operand == slot
    }
