"""An operation in the model: its options, what each takes and keeps, and how it reads its operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from combinators.frozen import changed, dataclass
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.derivatives.gradients import derivative_dependence, derivative_needs, presents_linearly
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.folding.merges import is_sum
from tapestry_jax.planning.geometry.layout import Layout, even_cut, true_layout
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.prediction.recomputed import read_by_derivative
from tapestry_jax.planning.pricing.roofline import ON_CHIP, stays
from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.reads import Cuts, all_axes, fold_axes, operand_layouts
from tapestry_jax.planning.scheduling.schedule import Run, Scatter, Schedule
from tapestry_jax.searching.exact.homes import Chosen, Home, Known, Option, Reading, Scope
from tapestry_jax.searching.exact.picks import Picks
from tapestry_jax.searching.exact.placements import placements
from tapestry_jax.searching.exact.prices import Prices, Want, Worked, result_layouts
from tapestry_jax.searching.exact.values import saved_where_changed, written


@dataclass(frozen=True, eq=False)
class Operations:
    """Makes picks of operations.

    Attributes:
      prices: of work.
      placer: of what the user fixed.
      outputs: layouts that the user fixed.
      picks: takes what is made.
    """

    prices: Prices
    placer: Placer
    outputs: Mapping[int, Layout]
    picks: Picks

    def modelled(self, scope: Scope, step: Run, homes: Mapping[int, Home], uses: Counter[int]) -> Known:
        """An operation as a pick, where its results lie, and how it reads."""
        schedule, flow = scope.schedule, scope.flow
        node, shaped = schedule.graph.nodes[step.node], schedule.graph.shaped(step.node)
        assert isinstance(node, Apply)
        cuts = placements(node, shaped, step.path, self.placer, self.prices.axes)
        leaving = schedule.outputs if scope.loop is None else schedule.outputs[scope.loop.carries :]
        may_scatter = not any(slot in leaving for slot in step.results)
        options = [Option(each, None) for each in cuts]
        if may_scatter:
            options += [Option(each, scatter) for each in cuts for scatter in self._scatters(schedule, step, each)]
        live = any(slot in flow.live for slot in step.results) and not is_barrier(node)
        runs = self._runs(scope, step)
        works = tuple(
            self.prices.work(schedule, step, flow, each.cuts, each.scatter, stacks=scope.loop is not None)
            for each in options
        )
        layouts = [result_layouts(schedule, changed(step, scatter=o.scatter), o.cuts) for o in options]
        near = self._near(scope, step, layouts)
        pick = self._pick(scope, step, homes, uses, options, works, near if live else ())
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

    def _pick(
        self,
        scope: Scope,
        step: Run,
        homes: Mapping[int, Home],
        uses: Counter[int],
        options: Sequence[Option],
        works: Sequence[Worked],
        near: Sequence[tuple[bool, ...]],
    ) -> int:
        """What each option takes, and the least of it that is left where it runs as one kernel with its neighbours.

        Args:
          scope: where it runs.
          step: the operation.
          homes: where its operands lie.
          uses: how often values are read.
          options: its own.
          works: what each of them takes.
          near: which results stay on the chip; empty where nobody needs them: such an operation takes no time.
        """
        node = scope.schedule.graph.nodes[step.node]
        assert isinstance(node, Apply)
        runs = self._runs(scope, step)
        bandwidth = self.prices.machine.streams
        fusable = [slot for slot in step.results if uses[slot] == 1 and not scope.flow.carries_gradient(slot)]
        own = dict(enumerate(step.operands))
        seconds: list[float] = []
        excess: list[float] = []
        forward: list[float] = []
        backward: list[float] = []
        for work, stay in zip(works if near else (), near, strict=True):
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
        pick = self.picks.pick(
            Chosen("operation", (step.path,), tuple(options), node),
            seconds or [0.0] * len(options),
            [self._kept_inside(scope, step, work) for work in works],
            excess,
        )
        if scope.group is not None and near:
            for number, (rooms, times) in enumerate(((forward, 1), (backward, runs - 1))):
                shares = [scope.share * each for each in rooms]
                self.picks.room(pick, 2 * scope.group + number, shares, scope.share * times / runs)
        return pick

    def _runs(self, scope: Scope, step: Run) -> int:
        """How often it runs in a turn: once more for every loop around that computes it again."""
        smooth = any(map(scope.flow.carries_gradient, step.results))
        return 1 + (scope.again - step.kept if smooth else 0)

    def _near(self, scope: Scope, step: Run, layouts: Sequence[Sequence[Layout]]) -> list[tuple[bool, ...]]:
        """By option, which results stay on the chip; those that leave do not, but for what is changed before."""
        schedule = scope.schedule
        return [
            tuple(
                stays(self.prices.machine, schedule.slots[slot].bytes_in(layout))
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
        whole = true_layout(layout.in_blocks, schedule.slots[slot].type.shape, self.prices.mesh)
        return any((self.outputs.get(place) or whole) == layout for place in places)

    def _scatters(self, schedule: Schedule, step: Run, cuts: Cuts) -> Iterable[Scatter]:
        """The ways in which a sum over the mesh can be scattered."""
        shaped = schedule.graph.shaped(step.node)
        folded = fold_axes(shaped, cuts)
        if not folded or not is_sum(shaped) or len(shaped.state) != 1 or shaped.carrier != shaped.result_names:
            return
        if len(step.results) != 1:
            return
        natural = result_layouts(schedule, replace(step, scatter=None), cuts)[0]
        for axis, size in enumerate(schedule.slots[step.results[0]].type.shape):
            if natural.cuts[axis] is None and size >= self.prices.mesh.size(folded):
                cut = even_cut(size, folded, self.prices.mesh)
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

    def _sliced(self, scope: Scope, slot: int) -> bool:
        """Whether it is a slice of what is stacked."""
        loop = scope.loop
        return loop is not None and slot in scope.schedule.inputs[loop.carries : loop.carries + len(loop.axes)]

    def _kept(self, scope: Scope, step: Run, cuts: Cuts, place: int) -> tuple[str, bool]:
        """How the backward pass comes by a slice of what is stacked, or an argument, and whether it needs it."""
        loop, slot = scope.loop, step.operands[place]
        if slot not in scope.sources:
            return "", False
        if loop is None or loop.remat:
            # What is computed again for other derivatives may need it too; those are small, such as biases.
            return "again", self._needs(scope, step, place)
        graph = scope.schedule.graph
        shaped = graph.shaped(step.node)
        folded = any(dim in cuts for dim in shaped.signature.fold_dims)
        if shaped.operation.over in cuts or (folded and not (is_sum(shaped) and presents_linearly(graph, step.node))):
            return "", False
        return "own", self._needs(scope, step, place)

    def _needs(self, scope: Scope, step: Run, place: int) -> bool:
        """Whether the gradient of an operation is computed from one of its operands."""
        flow = scope.flow
        if not any(map(flow.carries_gradient, step.results)):
            return False
        directions = (at for at, operand in enumerate(step.operands) if flow.carries_gradient(operand))
        return any(derivative_needs(scope.schedule.graph, step.node, at, place) for at in directions)

    def _kept_inside(self, scope: Scope, step: Run, work: Worked) -> float:
        """Bytes that are kept inside of its kernel, and of what devices have merged, which is not computed again."""
        smooth = any(map(scope.flow.carries_gradient, step.results))
        if not smooth:
            return 0.0
        merged = float(scope.received * sum(work.writes)) if work.merged else 0.0
        # What may gather its slices itself is computed again with them.
        stacks = scope.loop is not None and not scope.again and not any(self._sliced(scope, o) for o in step.operands)
        return merged + scope.turns * (work.stacked if stacks else work.kept)

    def _stacked(self, scope: Scope, step: Run, work: Worked) -> float:
        """Seconds in which a turn writes what the backward pass finds, and reads it."""
        loop = scope.loop
        if loop is None or not any(map(scope.flow.carries_gradient, step.results)) or (loop.remat and not step.kept):
            return 0.0
        flow = scope.flow
        kept = (size for slot, size in zip(step.results, work.writes, strict=True) if flow.carries_gradient(slot))
        return 2.0 * sum(kept) / self.prices.machine.streams
