"""From a choice of the model to what a user would have written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.searching.exact.homes import Chosen

Axes = tuple[str, ...]


def asked_for(graph: Graph, fixed: Asked, placer: Placer, chosen: Sequence[Chosen], choice: Sequence[int]) -> Asked:
    """What to ask of planning: entries for what most operations agree on, exceptions for the others.

    Args:
      graph: the program.
      fixed: what the user asked for.
      placer: of that.
      chosen: what the picks of the model stand for.
      choice: an option for each.
    """
    placed: dict[str, dict[str, Axes]] = {}
    inputs: dict[str, Layout] = {}
    for each, at in zip(chosen, choice, strict=True):
        option = each.options[at]
        if each.kind == "operation":
            assert each.node is not None
            for path in each.paths:
                placed[path] = _of_operation(each.node, path, placer, {d: cut.axes for d, cut in option.cuts.items()})
        elif each.kind == "input" and option.layout is not None:
            inputs |= dict.fromkeys(each.paths, option.layout)
    entries = _most(placed)
    ops: dict[str, dict[str, Axes]] = {}
    for path in sorted(placed, key=len):
        for name, axes in placed[path].items():
            if _effective(name, path, entries, ops) != axes:
                ops.setdefault(path, {})[name] = axes
    own = dict(fixed.ops)
    excepted = {path: (*own.pop(path, ()), *found.items()) for path, found in ops.items()}
    return replace(
        fixed,
        entries=(*fixed.entries, *((name, axes) for name, axes in entries.items())),
        ops=(*own.items(), *excepted.items()),
        inputs=(*fixed.inputs, *_stored(graph, inputs, {name for name, _ in fixed.inputs})),
    )


def _of_operation(node: Apply, path: str, placer: Placer, axes: dict[str, Axes]) -> dict[str, Axes]:
    return {name: axes.get(dim, ()) for dim, name in node.names if placer.is_free(name, path)}


def _most(placed: dict[str, dict[str, Axes]]) -> dict[str, Axes]:
    """For every name where most of the operations that have it put it; what is cut anywhere goes first."""
    found: dict[str, Counter[Axes]] = {}
    for own in placed.values():
        for name, axes in own.items():
            found.setdefault(name, Counter())[axes] += 1
    return {name: max(counts, key=lambda axes: (counts[axes], len(axes))) for name, counts in found.items()}


def _effective(name: str, path: str, entries: dict[str, Axes], ops: dict[str, dict[str, Axes]]) -> Axes:
    best = entries[name]
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        best = ops.get("/".join(parts[:depth]), {}).get(name, best)
    return best


def _stored(graph: Graph, layouts: dict[str, Layout], fixed: set[str]) -> list[tuple[str, Entries]]:
    found: list[tuple[str, Entries]] = []
    for node in graph.inputs:
        layout = layouts.get(node.name)
        if layout is not None and node.name not in fixed:
            names = node.results[0].names
            cuts = ((str(name), cut.axes) for name, cut in zip(names, layout.cuts, strict=True) if cut is not None)
            found.append((node.name, tuple(cuts)))
    return found
