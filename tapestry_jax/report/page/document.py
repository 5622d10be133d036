"""All that a page shows, as one JSON document. Texts of users are data in it; the page writes them as text alone."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.memory.predicted import MemoryNeeded
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.planning.prediction.collectives import Collective, collectives
from tapestry_jax.planning.pricing.cost import Cost
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.planning.timeline.timeline import Timeline
from tapestry_jax.report.page.alternatives import Alternative
from tapestry_jax.report.page.boxes import boxes_of
from tapestry_jax.report.page.drawing import Edge, Node, drawing
from tapestry_jax.report.page.scopes import Scope, scopes_of
from tapestry_jax.report.page.times import times_of
from tapestry_jax.shards.writing.written import written

_LISTED = 24
"""So many values that are alive at the peak are listed."""


@dataclass(frozen=True)
class Told:
    """What a page shows beside the plan itself, where somebody asked for it.

    Attributes:
      cost: on a machine.
      timeline: of a run on that machine.
      memory: of a device.
      alternatives: other plans of the same program, beside this one, which is the first, and candidates of its search.
      gap: of a plan that was searched for, the share of its price by which a better one could be cheaper at most.
      grad: as in `plan.collectives`; cost and memory were found with the same.
    """

    cost: Cost | None = None
    timeline: Timeline | None = None
    memory: MemoryNeeded | None = None
    alternatives: tuple[Alternative, ...] = ()
    gap: float | None = None
    grad: bool | int | Sequence[int] = False


def document(graph: Graph, schedule: Schedule, told: Told) -> dict[str, Any]:
    """The document of a plan.

    Args:
      graph: the program.
      schedule: of a plan for it.
      told: what is shown besides.

    Returns:
      What `json.dumps` writes: `nodes`, `edges`, `scopes`, `sends` and `blocks` refer to each other by place.
    """
    drawn = drawing(schedule)
    scopes, within = scopes_of(drawn)
    boxes = boxes_of(*written(graph, schedule))
    found = collectives(schedule, told.grad)
    nodes = [{**_plain(node), "scope": scope} for node, scope in zip(drawn.nodes, within, strict=True)]
    listed = [_plain(scope) for scope in scopes]
    for each in nodes:
        each.pop("loops", None)
        if each["kind"] == "operation" and each["path"] in boxes.by_path:
            each["blocks"] = boxes.by_path[each["path"]]
    unplaced = _place_sends(found, drawn.nodes, scopes, nodes, listed)
    _place_costs(told.cost, nodes, listed)
    return {
        "page": 1,
        "name": graph.name,
        "mesh": str(schedule.mesh),
        "grad": told.grad is not False,
        "nodes": nodes,
        "edges": [_edge(each) for each in drawn.edges],
        "scopes": listed,
        "sends": _sends(found, told.cost),
        "unplaced": unplaced,
        "blocks": boxes.families,
        "cost": None if told.cost is None else _cost(told.cost),
        "memory": _memory(told.memory, alive_at_once(schedule, told.grad)),
        "timeline": None if told.timeline is None else times_of(told.timeline),
        "alternatives": [dataclasses.asdict(each) for each in told.alternatives],
        "gap": told.gap,
    }


def _plain(value: Any, but: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass that say something; paths in any case, by which the page tells where things lie."""
    named = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.name not in but}
    return {
        name: own
        for name, own in named.items()
        if name == "path" or not (own is None or own is False or own in ("", ()))
    }


def _edge(edge: Edge) -> dict[str, Any]:
    return {"from": edge.source, "to": edge.target, **_plain(edge, {"source", "target"})}


def _sends(found: Sequence[Collective], cost: Cost | None) -> list[dict[str, Any]]:
    """Every collective, with its seconds where there is a price; the transfers of a cost are in the same order."""
    listed = [_plain(each, {"part", "perhaps"}) for each in found]
    if cost is not None and len(cost.transfers) == len(listed):
        for each, price in zip(listed, cost.transfers, strict=True):
            each |= {"seconds": price.seconds, "hidden": price.hidden}
    return listed


def _place_sends(
    found: Sequence[Collective],
    nodes: Sequence[Node],
    scopes: Sequence[Scope],
    into: list[dict[str, Any]],
    loops: list[dict[str, Any]],
) -> list[int]:
    """Write every collective to what causes it; those that nothing in the picture causes come back.

    A gather stands in the picture itself, between two nodes. What a fold merges, and what gradients send, stands at the
    operation, and what a ring or a pipeline hands on at its loop.
    """
    at: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for node, own in zip(nodes, into, strict=True):
        at.setdefault((node.path, node.sends or "operation"), []).append(own)
    for scope, own in zip(scopes, loops, strict=True):
        if scope.kind in ("repeat", "time"):
            at.setdefault((scope.path, "operation"), []).append(own)
    seen, unplaced = Counter[tuple[str, str, bool]](), list[int]()
    for number, each in enumerate(found):
        key = each.path, each.kind, each.backward
        own = at.get((each.path, each.kind)) if not each.backward else None
        own = own or at.get((each.path, "operation")) or at.get((each.path, each.kind))
        if own is None:
            unplaced.append(number)
            continue
        place = own[min(seen[key], len(own) - 1)] if own is at.get((each.path, each.kind)) else own[-1]
        place.setdefault("sent", []).append(number)
        seen[key] += 1
    return unplaced


def _place_costs(cost: Cost | None, nodes: Sequence[dict[str, Any]], loops: Sequence[dict[str, Any]]) -> None:
    """Write every price to the operation, or to what else has its path: the copies of a loop, or of what is sent."""
    prices = {} if cost is None else {each.path: each for each in cost.operations}
    operations = [node for node in nodes if node["kind"] == "operation"]
    for own in (*operations, *nodes, *loops):
        # Steps of one path, such as the turns of a deep halo, are priced together: the first of them has the price.
        price = prices.pop(own["path"], None)
        if price is not None:
            own["cost"] = {**_plain(price, {"path", "times"}), "seconds": price.seconds}


def _cost(cost: Cost) -> dict[str, Any]:
    shown = ("machine", "lies", "gradients", "seconds", "compute", "communication", "hidden", "bubble")
    axes = [["+".join(axes), seconds] for axes, seconds in cost.communication_by_axis.items()]
    return {**{name: getattr(cost, name) for name in shown}, "axes": axes}


def _memory(memory: MemoryNeeded | None, alive: int) -> dict[str, Any]:
    if memory is None:
        return {"alive": alive}
    rows = sorted(Counter(memory.live).items(), key=lambda pair: -pair[0].bytes * pair[1])
    listed = [{**_plain(each), "times": times} for each, times in rows[:_LISTED]]
    parts = {name: getattr(memory, name) for name in ("arguments", "results", "temporaries", "total")}
    rest = sum(each.bytes * times for each, times in rows[_LISTED:])
    return {"alive": alive, **parts, "live": listed, "rest": rest}
