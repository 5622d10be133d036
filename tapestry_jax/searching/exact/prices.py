"""What operations and changes of layout take, one by one, by the functions that price a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from combinators.frozen import changed, dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.machines.laid import Laid
from tapestry_jax.machines.transfer import latency
from tapestry_jax.machines.transfer import seconds as transfer_seconds
from tapestry_jax.planning.geometry.changes import Cast, Deal, Exchange, Gather
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.geometry.way import layout_changes
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.prediction.conversions import sent_by_convert
from tapestry_jax.planning.prediction.flow import Flow
from tapestry_jax.planning.prediction.operations import sent_by_run
from tapestry_jax.planning.pricing.combined import is_small_sum
from tapestry_jax.planning.pricing.keys import counts_key
from tapestry_jax.planning.pricing.marginal import block_counts
from tapestry_jax.planning.pricing.overlapped import share_behind
from tapestry_jax.planning.pricing.priced import backward_of, copied_bytes
from tapestry_jax.planning.pricing.roofline import block_bytes, inner_bytes, passed, roofline
from tapestry_jax.planning.scheduling.reads import Cuts, all_axes, result_layout
from tapestry_jax.planning.scheduling.schedule import Convert, Run, Scatter, Schedule, Slot


@dataclass(frozen=True)
class Parts:
    """What a change of layout takes.

    Attributes:
      own: seconds, without what other changes of the same value may begin with.
      common: that, by its keys.
      receives: whether other devices send anything.
      casts: whether it only makes a value vary over mesh axes, and its gradient is summed over them.
      behind: of both passes, the seconds that pass behind other layers where these compute long enough; not in `own`.
      copied: of both passes, the seconds of copies, which others can pass behind.
      sums: the mesh axes of sums of gradients that have their latency once, where they are those of arguments.
    """

    own: float = 0.0
    common: tuple[tuple[Any, float], ...] = ()
    receives: bool = False
    casts: bool = False
    behind: tuple[float, float] = (0.0, 0.0)
    copied: tuple[float, float] = (0.0, 0.0)
    sums: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class Want:
    """How a reader wants a value.

    Attributes:
      layout: that it reads.
      varying: the mesh axes over which it varies.
      smooth: whether a gradient comes back through the change.
      gathers: of a slice of stacked operands, how the backward pass comes by what is gathered: `own` where the
        operation gathers it itself, `again` where it is gathered once more; empty where it is kept.
      needed: whether the backward pass needs the value at all.
    """

    layout: Layout
    varying: frozenset[str]
    smooth: bool = False
    gathers: str = ""
    needed: bool = False


@dataclass(frozen=True)
class Worked:
    """What an operation takes in one placement, once.

    Attributes:
      floor: seconds, whatever it reads and writes.
      inner: bytes moved beside operands and results; those on the chip as far as they take time.
      reads: bytes of each operand.
      writes: bytes of each result.
      backward: seconds of its gradient.
      sends: seconds of merging what it folds, forwards and backwards.
      heads: what makes each result, and how often each operand is read, which says what is fused.
      merged: whether devices merge its results.
      kept: bytes that its gradient needs of what its kernel makes inside.
      stacked: the same in a loop whose turns are not computed again.
    """

    floor: float
    inner: float
    reads: tuple[float, ...]
    writes: tuple[float, ...]
    backward: float
    sends: float
    heads: tuple[tuple[str, ...], tuple[float, ...]]
    merged: bool
    kept: float
    stacked: float


class Prices:
    """Prices on one mesh, each found once.

    Attributes:
      laid: the mesh on its machine.
      machine: that it is on.
      mesh: its shape.
      axes: those on which something may be placed; the others are `taken`.
      latencies: of sums of gradients that are sent as one, by their mesh axes, as far as they were met.
    """

    def __init__(self, laid: Laid, mesh: MeshShape, graph: Graph, taken: frozenset[str] = frozenset()) -> None:
        self.axes = tuple(axis for axis in mesh.real(mesh.names) if axis not in taken)
        self.laid, self.machine, self.mesh, self._graph = laid, laid.machine, mesh, graph
        self._numbers: dict[Any, int] = {}
        self.latencies: dict[frozenset[str], float] = {}
        self._changed: dict[tuple[int, int, int], Parts] = {}
        self._worked: dict[Any, Worked] = {}
        # Looked up by what differs: to hash the machine with it takes longer than to price a collective.
        self._transfers: dict[tuple[str, tuple[str, ...], float], float] = {}

    def change(self, kind: TensorType, have: Layout, want: Want, leading: int = 1) -> float:
        """Seconds of a change of layout, forwards and backwards; 0 where there is none.

        Args:
          kind: of the value.
          have: where it lies.
          want: how it is read.
          leading: of slices, how many a loop takes; those that are only cast are so all at once, before it.

        Returns:
          Seconds of one turn.
        """
        found = self.parts(kind, have, want, leading)
        return found.own + sum(seconds for _, seconds in found.common)

    def number(self, thing: Any) -> int:
        """The number of a layout, or whatever prices go by: who asks for many pairs of them looks each up once."""
        return self._numbers.setdefault(thing, len(self._numbers))

    def parts(
        self,
        kind: TensorType,
        have: Layout,
        want: Want,
        leading: int = 1,
        known: tuple[int, int, int] | None = None,
    ) -> Parts:
        """The same, without what other changes of the same value may begin with, and that by its keys.

        Args:
          kind: of the value.
          have: where it lies.
          want: how it is read.
          leading: as for `change`.
          known: the numbers of its shape, dtype and `leading`, of `have` and of `want`.
        """
        key = known or (self.number((kind.shape, kind.dtype, leading)), self.number(have), self.number(want))
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = self._parts(kind, have, want, leading)
        return found

    def _parts(self, kind: TensorType, have: Layout, want: Want, leading: int) -> Parts:
        held = spread(have.axes)
        if have == want.layout and held == want.varying:
            return Parts()
        changes = layout_changes(kind.shape, have, want.layout, want.varying, self.mesh)
        slots = Slot(kind, have, held), Slot(kind, want.layout, want.varying)
        alone = Schedule(self._graph, self.mesh, slots, (), (), ())
        smooth = frozenset((0, 1) if want.smooth else ())
        flow, step = Flow(frozenset((0, 1)), smooth, smooth), Convert(0, 1, changes, "")
        if leading > 1 and all(isinstance(change, Cast) for change in changes):
            once = [*sent_by_convert(alone, step, flow, set(), leading)]
            return Parts(self.sent(once) / leading, casts=want.smooth, sums=self._sums(once))
        seen: set[Any] = set()
        gathers = want.gathers if any(isinstance(change, Gather) for change in changes) else ""
        layers = gathers == "own"
        sent = [*sent_by_convert(alone, step, flow, seen)]
        common: list[tuple[Any, float]] = []
        without = self.sent(filter(_is_told_each_time, sent), layers=layers) if seen else 0.0
        # In an order that is the same in every process: a set of texts has none.
        for key in sorted(seen, key=repr) if len(seen) > 1 else [*seen]:
            others = seen - {key}
            first = sent if not others else sent_by_convert(alone, step, flow, others)
            common.append((key, self.sent(first, layers=layers) - without))
        if gathers and want.needed:
            # Slices that are gathered in every turn, and not kept for the backward pass.
            once = Flow(flow.live, frozenset(), frozenset())
            sent += (changed(each, backward=True) for each in sent_by_convert(alone, step, once, set()))
        own = self.sent(sent, layers=layers) - sum(seconds for _, seconds in common)
        copied = 0.0 if layers else copied_bytes(alone, step) / self.machine.streams
        passes = [[each for each in sent if layers and each.backward == backward] for backward in (False, True)]
        return Parts(
            own + (1 + want.smooth) * copied,
            tuple(common),
            any(isinstance(change, Gather | Exchange | Deal) for change in changes),
            behind=(self._behind(passes[0]), self._behind(passes[1])) if layers else (0.0, 0.0),
            copied=(copied, want.smooth * copied),
            sums=self._sums(sent) if leading == 1 else (),
        )

    def _sums(self, collectives: Iterable[Collective]) -> tuple[frozenset[str], ...]:
        """The mesh axes of those that have their latency once, if they are sums of gradients of arguments."""
        found = [each.axes for each in collectives if is_small_sum(each)]
        self.latencies.update((frozenset(axes), latency(self.laid, "all-reduce", axes)) for axes in found)
        return tuple(map(frozenset, found))

    def sent(self, collectives: Iterable[Collective], *, layers: bool = False) -> float:
        """Seconds of collectives, one after the other; of `layers`, without what passes behind others."""
        found = [*collectives]
        return sum(map(self._sent, found)) - (self._behind(found) if layers else 0.0)

    def _behind(self, collectives: Iterable[Collective]) -> float:
        machine = self.machine
        return sum(share_behind(machine, e.kind, backward=e.backward) * self._sent(e) for e in collectives)

    def _sent(self, each: Collective) -> float:
        if not each.bytes:
            return 0.0
        key = each.kind, each.axes, each.bytes
        found = self._transfers.get(key)
        if found is None:
            found = self._transfers[key] = transfer_seconds(self.laid, *key)
        return each.times * found

    def work(
        self, schedule: Schedule, step: Run, flow: Flow, cuts: Cuts, scatter: Scatter | None, *, stacks: bool = False
    ) -> Worked:
        """What an operation takes with such cuts; of `schedule` and `flow` all but layouts counts.

        Args:
          schedule: that has it.
          step: the operation.
          flow: through it.
          cuts: its placement.
          scatter: of its sum.
          stacks: whether it stands in a loop, which stacks what the backward pass reads.
        """
        placed = changed(step, cuts=tuple(cuts.items()), axes=spread(all_axes(cuts.values())), scatter=scatter)
        key = counts_key(schedule, placed, self.machine.platform)
        flows = tuple((slot in flow.live, flow.carries_gradient(slot)) for slot in (*step.operands, *step.results))
        known = key, placed.cuts, scatter, flows, stacks
        found = self._worked.get(known)
        if found is None:
            found = self._worked[known] = self._work(schedule, placed, flow, key, stacks=stacks)
        return found

    def _work(self, schedule: Schedule, step: Run, flow: Flow, key: Any, *, stacks: bool) -> Worked:
        counts, cuts = block_counts(*key), dict(step.cuts)
        operation, operands, _, sizes = key
        shaped = schedule.graph.shaped(step.node)
        layouts = result_layouts(schedule, step, cuts)
        back, needs, _ = backward_of(step, flow, self.machine, key, stacks=stacks)
        return Worked(
            roofline(self.machine, counts, 0.0).total,
            passed(self.machine, counts, inner_bytes(self.machine, counts)),
            tuple(t * size for t, size in zip(counts.reads, block_bytes(operation, operands, sizes), strict=True)),
            tuple(
                float(schedule.slots[slot].bytes_in(layout)) for slot, layout in zip(step.results, layouts, strict=True)
            ),
            back.total,
            self.sent(sent_by_run(schedule, step, flow)),
            (counts.heads, counts.reads),
            any(dim in cuts for dim in shaped.signature.fold_dims),
            needs.kept,
            max(needs.kept, needs.stacked),
        )


def _is_told_each_time(each: Collective) -> bool:
    """Whether a change of layout sends it even where others of the same value have: sums, and what goes backwards."""
    return each.backward or each.kind == "all-reduce"


def result_layouts(schedule: Schedule, step: Run, cuts: Cuts) -> tuple[Layout, ...]:
    """The layouts in which an operation leaves its results."""
    shaped = schedule.graph.shaped(step.node)
    natural = [result_layout(axes, shaped.sizes, cuts) for axes in shaped.result_axes]
    if step.scatter is not None:
        natural = [natural[0].with_cut(step.scatter.axis, step.scatter.cut)]
    return tuple(natural)
