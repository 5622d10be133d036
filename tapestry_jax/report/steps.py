"""What is said of one step of a plan: where its dimensions go, what runs, what it costs, what it changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax

from combinators.operations.dense import passed_over, running
from combinators.operations.execute import run_blocks, states
from combinators.operations.operation import Operation
from combinators.operations.ready import portable, ready
from combinators.operations.shaped import Shaped, block_structs, shape
from combinators.operations.widening import WideKernel
from combinators.settings import remembered
from tapestry_jax.planning.entries.remat import RINGS
from tapestry_jax.planning.folding.merges import local_sizes
from tapestry_jax.planning.folding.traffic import nbytes
from tapestry_jax.planning.geometry.changes import Change, Deal, Exchange, Gather, Overlap, Slice
from tapestry_jax.planning.geometry.hops import sends
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import label
from tapestry_jax.planning.prediction.collectives import Collective
from tapestry_jax.planning.scheduling.schedule import Region, Run, Schedule
from tapestry_jax.report.placed import said

_MOST_CELLS = 2**63 - 1
"""Of an array, in XLA."""


def amount(value: float) -> str:
    """Three significant figures and an SI prefix: `1.28 M`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.0f} "


def dims_of(schedule: Schedule, step: Run) -> list[tuple[str, str]]:
    """The dimensions of an operation by the names that they have here, and where each goes; empty where it is whole."""
    cuts = dict(step.cuts)
    bound: dict[str, str] = dict(getattr(schedule.graph.nodes[step.node], "names", ()))
    return [(bound[dim], said(cuts[dim]) if dim in cuts else "") for dim in bound]


def kernels_of(schedule: Schedule, step: Run) -> list[str]:
    """Which kernels stand in for the operation's own, why others do not, and in what a fold is carried."""
    shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
    kernel = _kernel(shaped, _operand_structs(schedule, step), cuts, _is_folded(shaped, cuts))
    own = shaped.operation.kernel
    return [*filter(None, (kernel, f"carried in {own.dtype}" if isinstance(own, WideKernel) else ""))]


def block_cost(schedule: Schedule, step: Run) -> tuple[float | None, int]:
    """FLOPs and bytes of one device's block, by XLA's own count; nothing is compiled.

    FLOPs are None where an array has more cells than XLA can count.
    """
    shaped, cuts = schedule.graph.shaped(step.node), dict(step.cuts)
    folded = _is_folded(shaped, cuts)
    return _cost(shaped.operation, _operand_structs(schedule, step), tuple(sorted(cuts.items())), folded)


def collective_text(item: Collective, times: int | None = None) -> str:
    """What is sent; with the `times` of its row also how often each of them sends it."""
    often = f" x{item.times // times}" if times is not None and item.times > times else ""
    return f"{item.kind} {'+'.join(item.axes)} {item.bytes:,} B{often}{item.remark}"


def turns_text(schedule: Schedule, step: Region) -> str:
    """How often a loop turns; of a pipeline, the share of the turns in which a stage has nothing to do."""
    turns, stages = step.turns(schedule.mesh), schedule.mesh.size(step.stages)
    if stages == 1:
        return f"{turns} turns" + ", for the totals alone" * step.ends
    return f"{turns} turns, {stages} stages, bubble {stages - 1}/{turns} ({(stages - 1) / turns:.0%})"


def again_text(keeps: str) -> str:
    """That the backward pass computes something again, and what it keeps of it."""
    if keeps == RINGS:
        return "computed again backwards, rings sent round again"
    return f"computed again backwards{f' but for {keeps}' * bool(keeps)}"


def change_text(change: Change, names: tuple[str | None, ...], mesh: MeshShape) -> str:
    """A change of layout in words; empty where nothing is to be told."""
    match change:
        case Slice(axis, cut, _):
            return f"slice {names[axis]} {'in stripes ' * cut.striped}over {'+'.join(map(label, cut.axes))}"
        case Gather(axis, axes, _, _):
            return f"all-gather {names[axis]} over {'+'.join(axes)}"
        case Exchange(source, target, _, _, cut):
            return f"all-to-all {names[source]} to {names[target]} over {'+'.join(cut.axes)}"
        case Deal(axis, cut):
            return f"all-to-all {names[axis]} into {'stripes' if cut.striped else 'blocks'} over {'+'.join(cut.axes)}"
        case Overlap(axis, _, cut, _):
            word = "overlap" if sends(change, mesh) else "slice"
            return f"{word} {names[axis]} over {'+'.join(cut.axes)}" if cut.axes else f"extend {names[axis]}"
        case _:
            return ""


def _kernel(shaped: Shaped, operands: Sequence[jax.ShapeDtypeStruct], cuts: dict[str, Cut], folded: bool) -> str:
    blocks = block_structs(shaped.signature, operands, local_sizes(shaped, cuts))
    gives = "state" if folded else "result"
    found = running(shaped.operation, blocks, cuts, gives) or running(shaped.operation, blocks, cuts, "state")
    passed = passed_over(shaped.operation, blocks, cuts, gives)
    return " ".join([*([f"dense {found}"] if found else []), *([f"({passed})"] if passed else [])])


def _is_folded(shaped: Shaped, cuts: dict[str, Cut]) -> bool:
    return any(dim in cuts for dim in shaped.signature.fold_dims)


def _operand_structs(schedule: Schedule, step: Run) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(schedule.graph.type_of(ref).struct for ref in schedule.graph.nodes[step.node].operands)


@remembered(maxsize=4096)
def _cost(
    operation: Operation, operands: tuple[jax.ShapeDtypeStruct, ...], cuts: tuple[tuple[str, Cut], ...], folded: bool
) -> tuple[float | None, int]:
    shaped = shape(operation, operands)
    blocks = block_structs(shaped.signature, operands, local_sizes(shaped, dict(cuts)))
    function = states if folded else run_blocks
    # Fused kernels are calls in which XLA counts nothing, and which other platforms do not know.
    shaped = ready(portable(shaped), dict(cuts))
    block = jax.jit(lambda *arrays: function(shaped, arrays))
    structs = [*blocks, *jax.tree.leaves(block.eval_shape(*blocks))]
    size = sum(map(nbytes, structs))
    if any(math.prod(struct.shape) > _MOST_CELLS for struct in structs):
        return None, size
    try:
        cost: Any = block.lower(*blocks).cost_analysis()
    except RuntimeError as error:  # of an array inside of the kernel
        if "overflow in static extent product" not in str(error):
            raise
        return None, size
    return float((cost or {}).get("flops", 0.0)), size
