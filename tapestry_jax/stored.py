"""Fully sharded parameters: stored over a mesh axis that their operations use for something else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

from combinators.errors import PlanError, message
from combinators.graph import Graph, Input, Loop, Ref, Rename
from combinators.tensor_type import TensorType, is_inexact
from tapestry_jax.plan import Plan, make_plan
from tapestry_jax.planning.entries import read_entries
from tapestry_jax.planning.items import Item
from tapestry_jax.planning.layout import Layout, even_cut
from tapestry_jax.planning.mesh_shape import MeshShape


def fsdp(plan: Plan, over: str | Sequence[str], *, only: Sequence[str] | None = None, smallest: int = 1024) -> Plan:
    """Store the parameters of a plan cut over mesh axes that it does not cut them by.

    Every floating input that the plan does not cut over `over` already (as it does the batch) is a parameter. Its
    largest axis that divides is cut, an uncut one before one that is cut already; axes that a loop runs over stay
    whole. Where a parameter is used it is gathered, and its gradient is reduce-scattered; in loops over stacked layers
    only one layer is whole at a time, in the backward pass too. An optimiser whose state is made from parameters in
    `plan.in_shardings` keeps it in their layout. The chosen layouts are `inputs` of the new plan, as if by hand.

    Args:
      plan: from `tp.plan`; it says how the operations are cut.
      over: a mesh axis, or several, outermost first; usually that of the batch.
      only: names of inputs, or of what they lie below, such as `("model/decoder",)`; by default all parameters.
      smallest: parameters with fewer elements stay as they are: they cost little memory, and a collective each.

    Returns:
      A plan of the same graph on the same mesh.

    Raises:
      PlanError: when `plan` is no plan, `only` names no input, or no parameter can be stored over `over`.
      MeshError: for a mesh axis that the mesh does not have.

    Example:
      >>> import tapestry_jax as tp
      >>> from jax.sharding import AbstractMesh
      >>> x, w = tp.TensorType({"n": 8, "k": 64}), tp.TensorType({"k": 64, "m": 32})
      >>> graph = tp.trace(tp.einsum("n k, k m -> n m"), x, w)
      >>> plan = tp.fsdp(tp.plan(graph, AbstractMesh((4,), ("data",)), {"n": "data"}), "data")
      >>> plan.inputs, [each.kind for each in plan.collectives(grad=True)]
      ((('x1', (('k', ('data',)),)),), ['all-gather', 'reduce-scatter'])
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "only plans have parameters to store",
                f"got {type(plan).__name__}: {plan!r:.80}",
                remedy="Plan first: tp.fsdp(tp.plan(graph, mesh, {...}), 'data').",
            )
        )
    shape = MeshShape.of(plan.mesh)
    entries = read_entries({"parameters": over if isinstance(over, str) else tuple(over)}, shape, "fsdp")
    axes = shape.real(axis for axis in entries[0][1] if isinstance(axis, str))
    _check_names(plan.graph, only)
    if not axes:
        return plan
    inputs = dict(plan.inputs)
    stored = dict(_stored(plan, shape, axes, only, smallest))
    if not stored:
        raise PlanError(
            message(
                f"no parameter can be stored over `{'+'.join(axes)}`",
                f"mesh {shape}; floating inputs with at least {smallest} elements: {_listed(plan, smallest)}",
                remedy="Name axes whose size divides the parameters', or lower `smallest`.",
            )
        )
    kept = {each.name: getattr(plan, each.name) for each in fields(plan) if each.name not in ("inputs", "schedule")}
    return make_plan(**kept, inputs=tuple((inputs | stored).items()))


def _stored(
    plan: Plan, mesh: MeshShape, axes: tuple[str, ...], only: Sequence[str] | None, smallest: int
) -> Iterator[tuple[str, tuple[tuple[str, tuple[Item, ...]], ...]]]:
    """The name of every parameter that can be stored over `axes`, and its whole layout."""
    for node, number in zip(plan.graph.inputs, plan.schedule.inputs, strict=True):
        kind, layout = node.results[0], plan.schedule.slots[number].layout
        chosen = only is None or any(_is_below(node.name, name) for name in only)
        if not chosen or not _is_parameter(kind, layout, axes, smallest) or not _is_written(kind, layout, mesh):
            continue
        looped = _looped_axes(plan.graph, Ref(plan.graph.nodes.index(node), 0))
        place = _place(kind, layout, mesh, axes, looped)
        if place is None:
            continue
        cuts = [() if cut is None else cut.axes for cut in layout.cuts]
        cuts[place] += axes
        yield node.name, tuple((str(name), cut) for name, cut in zip(kind.names, cuts, strict=True) if cut)


def _is_parameter(kind: TensorType, layout: Layout, axes: tuple[str, ...], smallest: int) -> bool:
    return is_inexact(kind.dtype) and math.prod(kind.shape) >= smallest and not layout.axes & set(axes)


def _is_written(kind: TensorType, layout: Layout, mesh: MeshShape) -> bool:
    """Whether the layout is one that names and mesh axes say, block for block."""
    return all(
        cut is None or (name is not None and even_cut(size, cut.axes, mesh) == cut)
        for name, size, cut in zip(kind.names, kind.shape, layout.cuts, strict=True)
    )


def _place(
    kind: TensorType, layout: Layout, mesh: MeshShape, axes: tuple[str, ...], looped: frozenset[int]
) -> int | None:
    """The axis to cut: an uncut one if there is one that divides, and the largest of them."""
    found: list[tuple[bool, int, int]] = []
    for place, (name, size, cut) in enumerate(zip(kind.names, kind.shape, layout.cuts, strict=True)):
        pieces = mesh.size((*(() if cut is None else cut.axes), *axes))
        if name is not None and place not in looped and size and size % pieces == 0:
            found.append((cut is not None, -size, place))
    return min(found)[2] if found else None


def _looped_axes(graph: Graph, ref: Ref) -> frozenset[int]:
    """The axes of a value along which loops take slices: cut there, all of it would be gathered before the loop."""
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        for position, operand in enumerate(node.operands):
            if operand != ref:
                continue
            if isinstance(node, Rename):
                found |= _looped_axes(graph, Ref(index, 0))
            elif isinstance(node, Loop):
                inputs = [place for place, inner in enumerate(node.body.nodes) if isinstance(inner, Input)]
                inside = _looped_axes(node.body, Ref(inputs[position], 0))
                slot = position - node.carries
                if 0 <= slot < len(node.axes):
                    at = node.axes[slot]
                    inside = {at, *(axis + (axis >= at) for axis in inside)}
                found |= inside
    return frozenset(found)


def _check_names(graph: Graph, only: Sequence[str] | None) -> None:
    names = [node.name for node in graph.inputs]
    unknown = [name for name in only or () if not any(_is_below(known, name) for known in names)]
    if unknown:
        raise PlanError(
            message(
                f"fsdp names {unknown[0]!r}, which the graph does not have",
                f"it has {', '.join(names[:12])}",
                remedy="Name an input, or what several lie below.",
            )
        )


def _is_below(name: str, scope: str) -> bool:
    return name == scope or name.startswith(f"{scope}/")


def _listed(plan: Plan, smallest: int) -> str:
    large = [
        f"{node.name} {node.results[0]}"
        for node in plan.graph.inputs
        if is_inexact(node.results[0].dtype) and math.prod(node.results[0].shape) >= smallest
    ]
    return ", ".join(large[:6]) or "none"
