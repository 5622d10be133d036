"""From a program to its factored model: what the schedule will do with every choice, without making one.

The schedule of the same program that cuts nothing is walked. It has all that does not depend on placements: the order,
the loops, what is computed again, and which values gradients flow through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from combinators.graphs.nodes import Apply
from tapestry_jax.planning.derivatives.gradients import derivative_dependence, derivative_needs, presents_linearly
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.geometry.layout import Layout, even_cut, true_layout
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.prediction.flow import Flow, flow_of_body
from tapestry_jax.planning.prediction.recomputed import read_by_derivative
from tapestry_jax.planning.pricing.overlapped import share_of_layers
from tapestry_jax.planning.pricing.roofline import ON_CHIP, stays
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.reads import Cuts, all_axes, fold_axes, operand_layouts
from tapestry_jax.planning.scheduling.schedule import Repeat, Run, Scatter, Schedule
from tapestry_jax.searching.exact.classes import classes
from tapestry_jax.searching.exact.homes import Chosen, Home, Known, NotModelledError, Option, Reading, Scope
from tapestry_jax.searching.exact.model import Model, Pick, Value
from tapestry_jax.searching.exact.placements import even_layouts, placements
from tapestry_jax.searching.exact.prices import Prices, Want, Worked, result_layouts
from tapestry_jax.searching.exact.values import saved_where_changed, times_alike, value_between, written


class Builder:
    """Collects picks and values, scope by scope."""

    def __init__(self, prices: Prices, placer: Placer, inputs: dict[int, Layout], outputs: dict[int, Layout]) -> None:
        self.prices, self.mesh, self.placer = prices, prices.mesh, placer
        self.inputs, self.outputs = inputs, outputs
        self.chosen: list[Chosen] = []
        self._seconds: list[list[float]] = []
        self._excess: list[list[float]] = []
        self._held: list[list[float]] = []
        self._count: list[int] = []
        self._rooms: list[list[tuple[int, list[float], float]]] = []
        self._groups = 0
        self._more: list[list[tuple[float, float]]] = []
        self._values: dict[Any, tuple[Value, int]] = {}
        self._classes: dict[Any, Known] = {}
        # Values are known by the identity of their homes, which have to live as long.
        self._seen: list[Home] = []

    def model(self, schedule: Schedule, flow: Flow) -> Model:
        """The model of a program whose schedule cuts nothing."""
        scope = Scope(schedule, flow, classes=classes(schedule, flow, self._apart(schedule)))
        homes: dict[int, Home] = {}
        known: dict[int, Home] = {}
        for position, slot in enumerate(schedule.inputs):
            kind = scope.classes.inputs[position]
            if kind not in known:
                known[kind] = self._input(scope, position, slot)
            else:
                self._once_more(known[kind].pick, schedule.graph.inputs[position].name)
            homes[slot] = known[kind]
        self._walk(scope, homes)
        picks = tuple(map(self._made, range(len(self.chosen))))
        return Model(picks, tuple(times_alike(*value) for value in self._values.values()))

    def _made(self, number: int) -> Pick:
        times = self._count[number]
        more = self._more[number]
        return Pick(
            self.chosen[number].paths[0],
            tuple(times * each + own for each, (own, _) in zip(self._seconds[number], more, strict=True)),
            tuple(times * each for each in self._excess[number]),
            tuple(times * each + own for each, (_, own) in zip(self._held[number], more, strict=True)),
            tuple((at, tuple(times * each for each in rooms), share) for at, rooms, share in self._rooms[number]),
        )

    def _apart(self, schedule: Schedule) -> frozenset[int]:
        """Steps and inputs whose placement the user fixed by path or name."""
        scopes = [scope for scope, _ in self.placer.ops]
        steps = {
            number
            for number, step in enumerate(schedule.steps)
            if any(step.path == scope or step.path.startswith(f"{scope}/") for scope in scopes)
        }
        return frozenset(steps | {len(schedule.steps) + position for position in self.inputs})

    # Picks

    def _pick(self, chosen: Chosen, seconds: Sequence[float], held: Sequence[float]) -> int:
        self.chosen.append(chosen)
        self._seconds.append(list(seconds))
        self._excess.append([0.0] * len(seconds))
        self._held.append(list(held))
        self._count.append(1)
        self._rooms.append([])
        self._more.append([(0.0, 0.0)] * len(seconds))
        return len(self.chosen) - 1

    def _once_more(self, pick: int, path: str) -> None:
        """Another operation of a class."""
        chosen = self.chosen[pick]
        self.chosen[pick] = replace(chosen, paths=(*chosen.paths, path))
        self._count[pick] += 1

    def _add(self, pick: int, option: int, seconds: float, held: float = 0.0) -> None:
        """What one of a class takes besides."""
        own, kept = self._more[pick][option]
        self._more[pick][option] = own + seconds, kept + held

    def _input(self, scope: Scope, position: int, slot: int) -> Home:
        schedule = scope.schedule
        kind, name = schedule.slots[slot].type, schedule.graph.inputs[position].name
        fixed = self.inputs.get(position)
        named = [label is not None and kind.names.count(label) == 1 for label in kind.names]
        layouts = [fixed] if fixed is not None else even_layouts(kind.shape, named, self.mesh)
        layouts = [layout for layout in layouts if not self._cuts_stack(schedule, slot, layout)]
        copies = 1 + scope.flow.carries_gradient(slot)
        held = [float(copies * replace(schedule.slots[slot], layout=layout).local_bytes) for layout in layouts]
        options = tuple(Option(layout=layout) for layout in layouts)
        pick = self._pick(Chosen("input", (name,), options), [0.0] * len(layouts), held)
        return Home(pick, tuple(layouts), given=True)

    def _cuts_stack(self, schedule: Schedule, slot: int, layout: Layout) -> bool:
        """Whether a layout cuts an argument along the turns of a loop, which every device runs all of."""
        for step in schedule.steps:
            if isinstance(step, Repeat):
                for operand, at in zip(step.operands[step.carries :], step.axes, strict=False):
                    if operand == slot and layout.cuts[at] is not None:
                        return True
        return False

    # Scopes

    def _walk(self, scope: Scope, homes: dict[int, Home]) -> None:
        schedule = scope.schedule
        readings: dict[int, list[Reading]] = {}
        uses = Counter(slot for step in schedule.steps for slot in step.operands)
        uses.update(schedule.outputs)
        for number, step in enumerate(schedule.steps):
            match step:
                case Run():
                    self._run_once(scope, number, step, homes, readings, uses)
                case Repeat():
                    self._repeat(scope, step, homes, readings)
                case _:
                    raise NotModelledError(f"{type(step).__name__} at {step.path}")
        if scope.loop is None:
            self._leave(scope, homes)
        else:
            self._come_round(scope, scope.loop, homes, readings)
        for slot, found in readings.items():
            self._between(scope, slot, homes[slot], found)

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
                size = schedule.outputs.count(slot) * replace(schedule.slots[slot], layout=target).local_bytes
                self._add(home.pick, at, self.prices.change(kind, layout, want), size)

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
            known = self._classes[key] = self._run(scope, step, homes, uses)
        else:
            self._once_more(known.homes[0].pick, step.path)
        homes.update(zip(step.results, known.homes, strict=True))
        for slot, reading in zip(step.operands, known.readings, strict=True):
            readings.setdefault(slot, []).append(replace(reading))

    def _run(self, scope: Scope, step: Run, homes: dict[int, Home], uses: Counter[int]) -> Known:
        schedule, flow = scope.schedule, scope.flow
        node, shaped = schedule.graph.nodes[step.node], schedule.graph.shaped(step.node)
        assert isinstance(node, Apply)
        cuts = placements(node, shaped, step.path, self.placer)
        leaving = schedule.outputs if scope.loop is None else schedule.outputs[scope.loop.carries :]
        may_scatter = not any(slot in leaving for slot in step.results)
        options = [Option(each, None) for each in cuts]
        if may_scatter:
            options += [Option(each, scatter) for each in cuts for scatter in self._scatters(schedule, step, each)]
        live = any(slot in flow.live for slot in step.results) and not is_barrier(node)
        smooth = any(map(flow.carries_gradient, step.results))
        runs = 1 + (scope.again - step.kept if smooth else 0)
        works = tuple(
            self.prices.work(schedule, step, flow, each.cuts, each.scatter, stacks=scope.loop is not None)
            for each in options
        )
        layouts = [result_layouts(schedule, replace(step, scatter=o.scatter), o.cuts) for o in options]
        near = self._near(scope, step, layouts)
        machine = self.prices.machine
        bandwidth = machine.bandwidth.value
        fusable = [slot for slot in step.results if uses[slot] == 1 and not flow.carries_gradient(slot)]
        own = dict(enumerate(step.operands))
        seconds: list[float] = []
        excess: list[float] = []
        forward: list[float] = []
        backward: list[float] = []
        for work, stay in zip(works, near, strict=True) if live else ():
            writes = [written(scope, *each) for each in zip(step.results, work.writes, stay, strict=True)]
            moved = work.inner + sum(work.reads) + sum(writes)
            less = sum(size for slot, size in zip(step.results, writes, strict=True) if slot in fusable)
            less += sum(saved_where_changed(scope, *each) for each in zip(step.results, work.writes, stay, strict=True))
            less += sum(
                size if uses[own[place]] == 1 else size - size / ON_CHIP
                for place, size in enumerate(work.reads)
                if place in own and homes[own[place]].maker is not None
                if uses[own[place]] == 1 or any(homes[own[place]].near)
            )
            base = max(work.floor, (moved - less) / bandwidth)
            stacked = self._stacked(scope, step, work)
            seconds.append(scope.times * (runs * base + work.backward + work.sends + stacked))
            excess.append(scope.times * runs * max(moved / bandwidth - base, 0.0) if less else 0.0)
            forward.append(scope.times * base)
            backward.append(scope.times * ((runs - 1) * base + work.backward))
        pick = self._pick(
            Chosen("operation", (step.path,), tuple(options), node),
            seconds or [0.0] * len(options),
            [self._kept_inside(scope, step, work) for work in works],
        )
        if excess:
            self._excess[pick] = excess
        if scope.group is not None and live:
            for number, (rooms, times) in enumerate(((forward, 1), (backward, runs - 1))):
                shares = [scope.share * each for each in rooms]
                self._rooms[pick].append((2 * scope.group + number, shares, scope.share * times / runs))
        scattered = tuple(option.scatter is not None for option in options)
        maker = step if live else None
        made = tuple(
            Home(
                pick,
                tuple(each[number] for each in layouts),
                maker=maker,
                works=works,
                scattered=scattered,
                place=number,
                near=tuple(each[number] for each in near),
                runs=runs,
            )
            for number in range(len(step.results))
        )
        wants = [self._wants(scope, step, option.cuts) for option in options]
        needed = set(read_by_derivative(schedule, step, flow))
        read = tuple(
            Reading(
                pick,
                tuple(want[place] for want in wants),
                works=works if live else (),
                alone=uses[slot] == 1,
                place=place,
                runs=runs,
                needed=slot in needed,
                live=live,
            )
            for place, slot in enumerate(step.operands)
        )
        return Known(made, read)

    def _near(self, scope: Scope, step: Run, layouts: Sequence[Sequence[Layout]]) -> list[tuple[bool, ...]]:
        """By option, which results stay on the chip; those that leave do not, but for what is changed before."""
        schedule = scope.schedule
        return [
            tuple(
                stays(self.prices.machine, replace(schedule.slots[slot], layout=layout).local_bytes)
                and not self._leaves(scope, slot, layout)
                for slot, layout in zip(step.results, each, strict=True)
            )
            for each in layouts
        ]

    def _leaves(self, scope: Scope, slot: int, layout: Layout) -> bool:
        """Whether a value leaves as it lies."""
        schedule = scope.schedule
        places = [place for place, each in enumerate(schedule.outputs) if each == slot]
        if scope.loop is not None:
            return any(place >= scope.loop.carries for place in places)
        whole = true_layout(layout.in_blocks, schedule.slots[slot].type.shape, self.mesh)
        return any((self.outputs.get(place) or whole) == layout for place in places)

    def _scatters(self, schedule: Schedule, step: Run, cuts: Cuts) -> Iterable[Scatter]:
        """The ways in which a sum over the mesh can be scattered."""
        shaped = schedule.graph.shaped(step.node)
        operation, folded = shaped.operation, fold_axes(shaped, cuts)
        plain = operation.monoid is not None and operation.monoid.native == "sum"
        if not folded or not plain or len(shaped.state) != 1 or shaped.carrier != shaped.result_names:
            return
        if len(step.results) != 1:
            return
        natural = result_layouts(schedule, replace(step, scatter=None), cuts)[0]
        for axis, size in enumerate(schedule.slots[step.results[0]].type.shape):
            if natural.cuts[axis] is None and size >= self.mesh.size(folded):
                cut = even_cut(size, folded, self.mesh)
                if cut is not None:
                    yield Scatter(axis, cut)

    def _wants(self, scope: Scope, step: Run, cuts: Cuts) -> list[Want]:
        schedule, flow = scope.schedule, scope.flow
        shaped = schedule.graph.shaped(step.node)
        varying = spread(all_axes(cuts.values()))
        useful = [slot in flow.useful for slot in step.results]
        matrix = derivative_dependence(schedule.graph, step.node)
        wants: list[Want] = []
        for place, layout in enumerate(operand_layouts(shaped, cuts)):
            reached = any(row[place] and use for row, use in zip(matrix, useful, strict=True))
            smooth = reached and flow.carries_gradient(step.operands[place])
            wants.append(Want(layout, varying, smooth, *self._kept(scope, step, cuts, place)))
        return wants

    def _kept(self, scope: Scope, step: Run, cuts: Cuts, place: int) -> tuple[str, bool]:
        """How the backward pass comes by a slice of what is stacked, and whether it needs it."""
        loop, slot = scope.loop, step.operands[place]
        if loop is None or slot not in scope.schedule.inputs[loop.carries : loop.carries + len(loop.axes)]:
            return "", False
        graph = scope.schedule.graph
        directions = [at for at, operand in enumerate(step.operands) if scope.flow.carries_gradient(operand)]
        smooth = any(map(scope.flow.carries_gradient, step.results))
        needed = smooth and any(derivative_needs(graph, step.node, at, place) for at in directions)
        if loop.remat:
            # What is computed again for other derivatives may need it too; those are small, such as biases.
            return "again", needed
        shaped = graph.shaped(step.node)
        monoid = shaped.operation.monoid
        folded = any(dim in cuts for dim in shaped.signature.fold_dims)
        sums = monoid is not None and monoid.native == "sum"
        if shaped.operation.over in cuts or (folded and not (sums and presents_linearly(graph, step.node))):
            return "", False
        return "own", needed

    def _kept_inside(self, scope: Scope, step: Run, work: Worked) -> float:
        """Bytes that are kept inside of its kernel, and of what devices have merged, which is not computed again."""
        smooth = any(map(scope.flow.carries_gradient, step.results))
        if not smooth:
            return 0.0
        merged = float(scope.received * sum(work.writes)) if work.merged else 0.0
        return merged + scope.turns * work.kept

    def _stacked(self, scope: Scope, step: Run, work: Worked) -> float:
        """Seconds in which a turn writes what the backward pass finds, and reads it."""
        loop = scope.loop
        if loop is None or not any(map(scope.flow.carries_gradient, step.results)) or (loop.remat and not step.kept):
            return 0.0
        flow = scope.flow
        kept = (size for slot, size in zip(step.results, work.writes, strict=True) if flow.carries_gradient(slot))
        return 2.0 * sum(kept) / self.prices.machine.bandwidth.value

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
                inside[slot] = self._slice(scope, step, homes[operand], operand, step.axes[position - step.carries])
            else:
                outer = homes[operand]
                inside[slot] = Home(outer.pick, outer.layouts, constant=True)
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
        bandwidth, known = self.prices.machine.bandwidth.value, schedule.slots[slot]
        kept = flow.carries_gradient(slot)
        sizes = [replace(known, layout=layout).local_bytes for layout in layouts]
        seconds = [scope.times * 2.0 * size / bandwidth if kept else 0.0 for size in sizes]
        turns = scope.turns * loop.length if loop.remat else scope.turns
        held = [float(turns * size) if kept and loop.remat else 0.0 for size in sizes]
        options = tuple(Option(layout=layout) for layout in layouts)
        return Home(self._pick(Chosen("carry", (f"{loop.path}/{position}",), options), seconds, held), tuple(layouts))

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
                    for cuts in placements(node, shaped, step.path, self.placer)
                )
                return list(dict.fromkeys(found))
            if isinstance(step, Repeat) and place < step.carries:
                return self._first_reads(step.body, step.body.inputs[place])
            raise NotModelledError(f"a loop that reads what another carries, at {step.path}")
        return [Layout.whole(kind.ndim)]

    def _slice(self, scope: Scope, loop: Repeat, home: Home, operand: int, at: int) -> Home:
        kind = scope.schedule.slots[operand].type
        inside: list[Layout] = []
        for option, layout in enumerate(home.layouts):
            free = layout.with_cut(at, None)
            if free != layout:
                want = Want(free, spread(free.axes), scope.flow.carries_gradient(operand))
                self._add(home.pick, option, scope.times * self.prices.change(kind, layout, want))
            inside.append(Layout(free.cuts[:at] + free.cuts[at + 1 :]))
        return Home(home.pick, tuple(inside), loop=loop.length)

    def _between(self, scope: Scope, slot: int, home: Home, readings: list[Reading]) -> None:
        """A value, or another one that is alike: of the same makers and the same readers."""
        self._seen.append(home)
        kind = scope.schedule.slots[slot].type
        alike = id(scope.schedule), id(home), kind, tuple((each.pick, each.place, each.same) for each in readings)
        known = self._values.get(alike)
        value = known[0] if known is not None else value_between(self.prices, scope, slot, home, readings)
        self._values[alike] = value, 1 if known is None else known[1] + 1
