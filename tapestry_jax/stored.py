"""How parameters are stored: over a mesh axis that their operations use for something else, and in padded pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from combinators.arguments import read_count, read_flag, read_list, read_name
from combinators.errors import PlanError, message, spelt
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Input, Loop, Ref, Rename
from combinators.graphs.scopes import is_inside
from combinators.index_space.tensor_type import TensorType, is_inexact
from tapestry_jax.plan import Plan, asked_of, make_plan
from tapestry_jax.planning.entries.items import Item, Padded
from tapestry_jax.planning.entries.read import Entries, read_entries
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.scheduling.schedule import Convert


def fsdp(
    plan: Plan,
    over: str | Sequence[str],
    *,
    only: Sequence[str] | None = None,
    smallest: int = 1024,
    padded: bool = False,
) -> Plan:
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
      padded: store parameters of which no axis divides in padded pieces (`tp.padded`), cut along the axis that needs
        least padding; `plan.pad` and `plan.crop` lead to and from true shapes. Without it they stay as they are.

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
    _check_plan(plan)
    padded = read_flag(padded, "padded= of tp.fsdp", PlanError)
    smallest = read_count(smallest, "smallest= of tp.fsdp", 0, PlanError)
    only = _read_only(only, "tp.fsdp")
    over = (over,) if isinstance(over, str) else read_list(over, "over= of tp.fsdp", PlanError)
    if not over:
        raise PlanError(
            message("tp.fsdp stores over no mesh axis", f"got over={over!r}", remedy='Name one: tp.fsdp(plan, "data").')
        )
    shape = MeshShape.of(plan.mesh)
    entries = read_entries({"parameters": over}, shape, "fsdp")
    axes = shape.real(axis for axis in entries[0][1] if isinstance(axis, str))
    _check_names(plan.graph, only)
    if not axes:
        return plan
    inputs = dict(plan.inputs)
    stored = dict(_stored(plan, shape, axes, only, smallest, padded=padded))
    if not stored:
        raise PlanError(
            message(
                f"no parameter can be stored over `{'+'.join(axes)}`",
                f"mesh {shape}; floating inputs with at least {smallest} elements: {_listed(plan, smallest)}",
                remedy="Name axes whose size divides the parameters', lower `smallest`, or say padded=True.",
            )
        )
    return _with_inputs(plan, inputs | stored)


def stored_over(plan: Plan, axes: Sequence[str], *, smallest: int) -> dict[str, Entries]:
    """The layouts that `fsdp` would choose beside those that were asked for, by name; empty where it would refuse.

    Also of what is read in pieces over these axes and does not divide: stored along its own axis it would lie whole.
    """
    shape = MeshShape.of(plan.mesh)
    kept = dict(plan.inputs)
    real = shape.real(axes)
    found = _stored(plan, shape, real, None, smallest, padded=False, uneven=True) if real else ()
    return {name: layout for name, layout in found if name not in kept}


def store_padded(plan: Plan, *, only: Sequence[str] | None = None) -> Plan:
    """Store the arguments that do not divide in padded pieces, as their first user reads them.

    A plan stores them whole along such axes, and slices inside: nothing is sent forwards, and their gradients are
    gathered. In padded pieces a device holds its share alone and the gradient stays where it is, but global arrays are
    larger than they are: `plan.pad` and `plan.crop` lead to and from true shapes. The chosen layouts are `inputs` of
    the new plan, as if by hand with `tp.padded`.

    Args:
      plan: from `tp.plan`.
      only: names of inputs, or of what they lie below, such as `("model/decoder",)`; by default all inputs.

    Returns:
      A plan of the same graph on the same mesh; the same plan where everything divides.

    Raises:
      PlanError: when `plan` is no plan, or `only` names no input.

    Example:
      >>> import tapestry_jax as tp
      >>> from jax.sharding import AbstractMesh
      >>> x, w = tp.TensorType({"n": 8, "k": 64}), tp.TensorType({"k": 64, "m": 30})
      >>> graph = tp.trace(tp.einsum("n k, k m -> n m"), x, w)
      >>> plan = tp.plan(graph, AbstractMesh((4,), ("model",)), {"m": "model"})
      >>> [str(each.spec) for each in (plan.in_shardings[1], tp.store_padded(plan).in_shardings[1])]
      ['P(None, None)', "P(None, 'model')"]
    """
    _check_plan(plan)
    only = _read_only(only, "tp.store_padded")
    _check_names(plan.graph, only)
    mesh, stored = MeshShape.of(plan.mesh), dict(plan.inputs)
    for node, number in zip(plan.graph.inputs, plan.schedule.inputs, strict=True):
        kind, layout = node.results[0], plan.schedule.slots[number].layout
        read = _first_read(plan, number)
        chosen = only is None or any(is_inside(node.name, name) for name in only)
        if chosen and read != layout and node.name not in stored and _is_named(kind, read):
            named = zip(kind.names, kind.shape, read.cuts, strict=True)
            stored[node.name] = tuple((str(name), _written(size, cut.axes, mesh)) for name, size, cut in named if cut)
    return _with_inputs(plan, stored)


def _read_only(only: Any, where: str) -> list[str] | None:
    """Names of inputs, one or several; None for all."""
    if only is None:
        return None
    listed = (only,) if isinstance(only, str) else read_list(only, f"only= of {where}", PlanError)
    return [read_name(name, f"a name in only= of {where}", PlanError) for name in listed]


def _first_read(plan: Plan, slot: int) -> Layout:
    """The layout into which an input is brought where it enters the program."""
    steps = (step for step in plan.schedule.steps if isinstance(step, Convert) and step.enters)
    return plan.schedule.slots[next((step.result for step in steps if step.source == slot), slot)].layout


def _with_inputs(plan: Plan, inputs: Mapping[str, Entries]) -> Plan:
    if tuple(inputs.items()) == plan.inputs:
        return plan
    return make_plan(plan.graph, plan.mesh, replace(asked_of(plan), inputs=tuple(inputs.items())))


def _check_plan(plan: Any) -> None:
    if not isinstance(plan, Plan):
        raise PlanError(
            message(
                "only plans have parameters to store",
                f"got {type(plan).__name__}: {spelt(plan)}",
                remedy="Plan first: tp.fsdp(tp.plan(graph, mesh, {...}), 'data').",
            )
        )


def _stored(
    plan: Plan,
    mesh: MeshShape,
    axes: tuple[str, ...],
    only: Sequence[str] | None,
    smallest: int,
    *,
    padded: bool,
    uneven: bool = False,
) -> Iterator[tuple[str, Entries]]:
    """The name of every parameter that can be stored over `axes`, and its whole layout.

    What the program reads in pieces over `axes` is none, but for what lies whole since it is `uneven`, if asked for.
    """
    for node, number in zip(plan.graph.inputs, plan.schedule.inputs, strict=True):
        kind, read, layout = node.results[0], _first_read(plan, number), plan.schedule.slots[number].layout
        chosen = only is None or any(is_inside(node.name, name) for name in only)
        layout = read if padded else layout
        if (
            not chosen
            or not _is_parameter(kind, layout if uneven else read, axes, smallest)
            or not _is_named(kind, layout)
        ):
            continue
        looped = _looped_axes(plan.graph, Ref(plan.graph.nodes.index(node), 0))
        place = _place(kind, read, layout, mesh, axes, looped, padded=padded)
        if place is None:
            continue
        cuts = [() if cut is None else cut.axes for cut in layout.cuts]
        cuts[place] += axes
        named = zip(kind.names, kind.shape, cuts, strict=True)
        yield node.name, tuple((str(name), _written(size, cut, mesh)) for name, size, cut in named if cut)


def _written(size: int, axes: tuple[str, ...], mesh: MeshShape) -> tuple[Item, ...]:
    return axes if size % mesh.size(axes) == 0 else (Padded(axes),)


def _is_parameter(kind: TensorType, lies: Layout, axes: tuple[str, ...], smallest: int) -> bool:
    return is_inexact(kind.dtype) and math.prod(kind.shape) >= smallest and not lies.axes & set(axes)


def _is_named(kind: TensorType, layout: Layout) -> bool:
    """Whether names can say the layout."""
    return all(cut is None or name is not None for name, cut in zip(kind.names, layout.cuts, strict=True))


def _place(
    kind: TensorType,
    read: Layout,
    layout: Layout,
    mesh: MeshShape,
    axes: tuple[str, ...],
    looped: frozenset[int],
    *,
    padded: bool,
) -> int | None:
    """The axis to cut: one that divides, else the one that is padded least; an uncut one; the largest of them."""
    found: list[tuple[float, bool, int, int]] = []
    for place, (name, size, cut) in enumerate(zip(kind.names, kind.shape, layout.cuts, strict=True)):
        pieces = mesh.size((*(() if cut is None else cut.axes), *axes))
        if name is not None and place not in looped and size and (padded or size % pieces == 0):
            growth = -(-size // pieces) * pieces / size
            found.append((growth, read.cuts[place] is not None, -size, place))
    return min(found)[-1] if found else None


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
    unknown = [name for name in only or () if not name or not any(is_inside(known, name) for known in names)]
    if unknown:
        raise PlanError(
            message(
                f"fsdp names {unknown[0]!r}, which the graph does not have",
                f"it has {', '.join(names[:12])}",
                remedy="Name an input, or what several lie below.",
            )
        )


def _listed(plan: Plan, smallest: int) -> str:
    large = [
        f"{node.name} {node.results[0]}"
        for node in plan.graph.inputs
        if is_inexact(node.results[0].dtype) and math.prod(node.results[0].shape) >= smallest
    ]
    return ", ".join(large[:6]) or "none"
