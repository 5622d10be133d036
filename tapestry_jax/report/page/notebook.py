"""A plan as a small table of HTML, for notebooks: equal layers once, and no script."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.graphs.graph import Graph
from combinators.graphs.html import table
from tapestry_jax.planning.prediction.collectives import collectives
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.report.page.drawing import Node, drawing
from tapestry_jax.report.page.scopes import Scope, scopes_of
from tapestry_jax.report.steps import collective_text


def plan_table(graph: Graph, schedule: Schedule) -> str:
    """Where the dimensions of every operation go, and what it sends; nothing is counted, lowered or compiled.

    Args:
      graph: the program.
      schedule: of a plan for it.

    Returns:
      HTML; names of users stand in it as text.
    """
    drawn = drawing(schedule, counted=False)
    scopes, within = scopes_of(drawn)
    found = collectives(schedule)
    sent: dict[str, list[str]] = {}
    for each in found:
        sent.setdefault(each.path, []).append(collective_text(each))
    causes = {node.path for node in drawn.nodes if node.kind in ("operation", "merge")}
    body: list[tuple[str, str, str]] = []
    told = set[int]()
    for node, scope in zip(drawn.nodes, within, strict=True):
        around = _around(scopes, scope)
        if node.kind == "output" or any(not _is_first(scopes, each) for each in around):
            continue
        loops = [each for each in around if scopes[each].kind in ("repeat", "time")]
        for depth, each in enumerate(loops):
            if each not in told:
                told.add(each)
                own = scopes[each]
                body.append((_indent(depth) + own.path, own.what, "; ".join(sent.get(own.path, ()))))
        notes = sent.get(node.path, ()) if node.kind != "sent" or node.path not in causes else ()
        body.append((_indent(len(loops)) + _family(node.path, scopes, around), _where(node), "; ".join(notes)))
    caption = f"{graph.name} on the mesh {schedule.mesh}: {len(found)} collectives"
    return table(caption, ("operation", "dimensions", "communication"), body)


def _around(scopes: Sequence[Scope], scope: int) -> list[int]:
    """The scopes around a node, the outermost first."""
    found = list[int]()
    while scope >= 0:
        found.append(scope)
        scope = scopes[scope].parent
    return found[::-1]


def _is_first(scopes: Sequence[Scope], scope: int) -> bool:
    """Whether a scope is the first of its row, or stands in none."""
    parent = scopes[scope].parent
    return parent < 0 or scopes[parent].kind != "alike" or scope == parent + 1


def _family(path: str, scopes: Sequence[Scope], around: Sequence[int]) -> str:
    """The path, in which equal scopes in a row go by the name of their row: `decoder/0..11 x12/mlp/up`."""
    for scope in reversed(around):
        parent, own = scopes[scope].parent, scopes[scope].path
        at = f"/{path}/".find(f"/{own}/")
        if parent >= 0 and scopes[parent].kind == "alike" and at >= 0:
            row = f"{scopes[parent].name.rpartition('/')[2]} x{scopes[parent].count}"
            path = path[: at + len(own.rpartition("/")[0]) + ("/" in own)] + row + path[at + len(own) :]
    return path


def _where(node: Node) -> str:
    if node.kind == "operation":
        return " ".join(f"{dim}:{where}" if where else dim for dim, where in node.dims)
    return f"{node.types[0]}: {node.layouts[0]}" if node.kind == "input" else node.what


def _indent(depth: int) -> str:
    return "\u2003" * depth
