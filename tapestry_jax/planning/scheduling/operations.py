"""The steps of single operations: on blocks, and the ends of folds that loops have added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from combinators.graphs.nodes import Apply, Ref
from combinators.index_space.tensor_type import TensorType
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.folding.merges import is_sum
from tapestry_jax.planning.folding.traffic import varying_leaves
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.opening import made_outside
from tapestry_jax.planning.geometry.time_axis import in_space, in_time, spread
from tapestry_jax.planning.scheduling.demands import Demands
from tapestry_jax.planning.scheduling.frame import Frame
from tapestry_jax.planning.scheduling.gradient_orders import gradient_orders
from tapestry_jax.planning.scheduling.reads import Cuts, all_axes, fold_axes, result_layout
from tapestry_jax.planning.scheduling.schedule import Finish, Run, Scatter, Slot


def schedule_operation(demands: Demands, index: int, frame: Frame, outputs: Mapping[int, Layout]) -> None:
    """Add the step of one operation, its operands in the layouts in which it reads them.

    Args:
      demands: of the graph.
      index: the operation's node.
      frame: where steps are collected.
      outputs: layouts of outputs by position; a sum may be scattered as one of them wants it.
    """
    node = demands.graph.nodes[index]
    assert isinstance(node, Apply)
    shaped, cuts, path = demands.shaped[index], demands.cuts[index], demands.prefix + node.path
    axes = spread(all_axes(cuts.values())) | frame.stages
    operands = tuple(
        frame.convert(demands.source(ref), layout, axes, path, order)
        for ref, layout, order in zip(
            node.operands, demands.operand_layouts(index), gradient_orders(shaped), strict=True
        )
    )
    if in_time(fold_axes(shaped, cuts)):
        kinds = [demands.graph.type_of(ref).struct for ref in node.operands]
        # Devices in different turns have different counts.
        varies = None if frame.stages else varying_leaves(shaped, kinds, cuts, frame.mesh)
        results = _state_slots(frame, shaped, cuts, axes, varies=varies)
        frame.states[index] = results
        frame.steps.append(Run(index, operands, results, tuple(cuts.items()), axes, None, path, carried=True))
        return
    results, scatter = _results(demands, index, cuts, frame, outputs)
    over = shaped.operation.over
    carried = over in cuts and bool(in_time(cuts[over].axes))
    if carried:
        before, after = (_state_slots(frame, shaped, cuts, axes, without=over) for _ in range(2))
        frame.totals[index] = before, after
        operands, results = operands + before, results + after
    frame.steps.append(Run(index, operands, results, tuple(cuts.items()), axes, scatter, path, carried=carried))


def schedule_finish(demands: Demands, index: int, frame: Frame, outputs: Mapping[int, Layout]) -> None:
    """Add the step that merges and presents a fold, whose states the loops inside `frame` have added up."""
    node = demands.graph.nodes[index]
    assert isinstance(node, Apply)
    folds = demands.shaped[index].signature.fold_dims
    cuts = made_outside(demands.cuts[index], frame.opened, folds)
    operands = frame.states.pop(index)
    axes = spread(all_axes(cuts.values())) | frame.stages
    results, scatter = _results(demands, index, cuts, frame, outputs)
    frame.steps.append(Finish(index, operands, results, tuple(cuts.items()), axes, scatter, demands.prefix + node.path))


def _results(
    demands: Demands, index: int, cuts: Cuts, frame: Frame, outputs: Mapping[int, Layout]
) -> tuple[tuple[int, ...], Scatter | None]:
    """Slots of the results, one of them scattered where all its consumers want that."""
    shaped = demands.shaped[index]
    natural = [result_layout(result, shaped.sizes, cuts) for result in shaped.result_axes]
    scatter = _scatter(demands, index, shaped, cuts, natural[0], outputs, frame) if len(natural) == 1 else None
    if scatter is not None:
        natural = [natural[0].with_cut(scatter.axis, scatter.cut)]
    return tuple(frame.store(Ref(index, number), layout) for number, layout in enumerate(natural)), scatter


def _scatter(
    demands: Demands,
    index: int,
    shaped: Shaped,
    cuts: Cuts,
    natural: Layout,
    outputs: Mapping[int, Layout],
    frame: Frame,
) -> Scatter | None:
    """Where every consumer wants the sum cut over the very axes that it is folded over."""
    folded = in_space(fold_axes(shaped, cuts))
    # Results are presented cell by cell, so what is scattered may be presented after it.
    if not folded or not is_sum(shaped) or len(shaped.state) != 1 or shaped.carrier != shaped.result_names:
        return None
    ref = Ref(index, 0)
    wanted = demands.wanted(ref, frame.opened)
    for position, (_, output) in enumerate(demands.graph.outputs):
        if demands.source(output) == ref:
            wanted.append(outputs.get(position, natural))
    if not wanted:
        return None
    first = wanted[0]
    if any(demand != first for demand in wanted):
        return None
    gained = [axis for axis, (a, b) in enumerate(zip(natural.cuts, first.cuts, strict=True)) if a != b]
    if len(gained) != 1 or natural.cuts[gained[0]] is not None:
        return None
    cut = first.cuts[gained[0]]
    return Scatter(gained[0], cut.in_blocks) if cut is not None and cut.axes == folded else None


def _state_slots(
    frame: Frame,
    shaped: Shaped,
    cuts: Cuts,
    axes: frozenset[str],
    without: str | None = None,
    varies: Sequence[bool] | None = None,
) -> tuple[int, ...]:
    """Slots of the leaves of a state that a loop carries; `without` the dimension of a scan, those of a total."""
    slots: list[int] = []
    for number, (leaf, names) in enumerate(zip(shaped.state, shaped.carrier, strict=True)):
        kept = [(name, size) for name, size in zip(names, leaf.shape, strict=True) if name != without]
        kind = TensorType.make((None,) * len(kept), [size for _, size in kept], leaf.dtype)
        layout = Layout(tuple(cuts.get(name) for name, _ in kept))
        alike = varies is not None and not varies[number]
        slots.append(frame.add(Slot(kind, layout, frozenset() if alike else axes)))
    return tuple(slots)
