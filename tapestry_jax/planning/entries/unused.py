"""What a plan asks for and nothing takes is refused, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from combinators.errors import PlanError, message, spelt
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from combinators.graphs.scopes import above, is_inside
from tapestry_jax.planning.entries.items import Ring
from tapestry_jax.planning.entries.loop_rules import unused_ring
from tapestry_jax.planning.entries.placement import Placer, why_whole
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.planning.entries.stage_rules import no_microbatches, turns_in_loops


def check_all_used(placer: Placer, graph: Graph) -> None:
    """Every entry must cut something, every exception must name an operation, and every ring must turn.

    Args:
      placer: it has placed all operations, and knows which entries have cut anything.
      graph: the program.

    Raises:
      PlanError: for one that does not.
    """
    known = {place.path: node for place, node in walk.operations(graph)}
    _check_exceptions(placer, known)
    dims = {name for node in known.values() for _, name in node.names}
    for dim, axes in placer.entries:
        if not axes and dim not in dims and not _carriers(graph, dim):
            _refuse(placer, dim, dims, graph)
        if axes and (None, dim) not in placer.used:
            excepted = any((scope, dim) in placer.used for scope, _ in placer.ops)
            if not excepted:
                _refuse(placer, dim, dims, graph)
    for dim, items in (entry for entries in (placer.entries, *(e for _, e in placer.ops)) for entry in entries):
        for item in items:
            if isinstance(item, Ring) and (dim, item.axis) not in placer.rings:
                raise unused_ring(dim, item.axis)


def check_names(graph: Graph, entries: Entries, ops: Sequence[tuple[str, Entries]]) -> None:
    """What is only a part of a plan need not cut anything yet, but must name what the graph has.

    Args:
      graph: the program.
      entries: of the part.
      ops: its exceptions.

    Raises:
      PlanError: where one names nothing.
    """
    dims = {name for _, node in walk.operations(graph) for _, name in node.names}
    turns = {loop.over for _, loop in walk.loops(graph)}
    for dim, axes in entries:
        if dim not in dims | turns and (axes or not _carriers(graph, dim)):
            _refuse_unknown(dim, dims, graph)
    for scope, exceptions in ops:
        check_exception_names(graph, scope, exceptions)


def read_path(graph: Graph, path: Any, what: str) -> str:
    """The path of an operation or scope of a graph.

    Args:
      graph: the program.
      path: as a user wrote it.
      what: takes it, as the error calls it.

    Raises:
      PlanError: where there is no operation.
    """
    known = {place.path: node for place, node in walk.operations(graph)}
    # The empty path would be the whole program: what holds everywhere is no exception.
    return path if isinstance(path, str) and path and _inside(known, path, what) else _refuse_path(path, known, what)


def check_exception_names(graph: Graph, scope: str, entries: Entries, what: str = "ops") -> None:
    """An exception must name operations, and dimensions that they have, or along which layers there are taken.

    Args:
      graph: the program.
      scope: the path.
      entries: of the exception.
      what: takes them, as the error calls it.

    Raises:
      PlanError: where it does not.
    """
    known = {place.path: node for place, node in walk.operations(graph)}
    inside = _inside(known, scope, what)
    turns = {loop.over for place, loop in walk.loops(graph) if is_inside(place.path, scope)}
    dims = {name for path in inside for _, name in known[path].names}
    for dim, _ in entries:
        if dim not in dims | turns:
            remedy = "Name one of them."
            told = f"dimensions there that can be placed: {_some(sorted(dims))}"
            raise PlanError(message(f"`{dim}` is no dimension of {scope!r}", told, remedy=remedy))


def _inside(known: Mapping[str, Apply], scope: str, what: str = "ops") -> list[str]:
    """The paths of a scope.

    Raises:
      PlanError: when there are none.
    """
    return [path for path in known if is_inside(path, scope)] or _refuse_path(scope, known, what)


def _refuse_path(path: Any, known: Mapping[str, Apply], what: str) -> NoReturn:
    raise PlanError(
        message(
            f"{what} names the path {spelt(path, 200)}, where the graph has no operation",
            f"paths: {_some(sorted(known))}",
            remedy="Give the path of an operation or scope, as graph.show() prints them.",
        )
    )


def _check_exceptions(placer: Placer, known: Mapping[str, Apply]) -> None:
    scopes = {scope for path in known for scope in ("", *above(path), path)}
    for scope, entries in placer.ops:
        if scope not in scopes:
            _refuse_path(scope, known, "ops")
        for dim, _ in entries:
            if (scope, dim) not in placer.used:
                inside = _inside(known, scope)
                _refuse_there(placer, dim, scope, {name for path in inside for _, name in known[path].names})


def _refuse_there(placer: Placer, dim: str, scope: str, dims: Collection[str]) -> None:
    longer = [other for other, entries in placer.ops if other.startswith(scope + "/") and dim in dict(entries)]
    if dim in dims and longer:
        why, remedy = f"longer paths place it: {_some(longer)}", "Leave it out."
    else:
        why, remedy = f"dimensions there that can be placed: {_some(sorted(dims))}", "Name one of them."
    raise PlanError(message(f"ops[{scope!r}] places `{dim}`, which cuts nothing there", why, remedy=remedy))


def _refuse(placer: Placer, dim: str, dims: set[str], graph: Graph) -> None:
    if dim not in dims:
        _refuse_turns(placer, dim, graph)
        _refuse_unknown(dim, dims, graph)
    reasons = [
        f"{place.path}: {why}"
        for place, node in walk.operations(graph)
        for local, name in node.names
        if name == dim and (why := why_whole(place.graph.shaped(place.index), local)) is not None
    ]
    raise PlanError(
        message(
            f"the plan places `{dim}`, which cuts nothing",
            *reasons[:4],
            remedy="Leave it out, or place it where it can be cut.",
        )
    )


def _refuse_turns(placer: Placer, dim: str, graph: Graph) -> None:
    """Where it is the dimension along which a repetition takes its layers."""
    for place, loop in walk.loops(graph):
        if loop.over == dim:
            items = dict(placer.entries)[dim]
            if not all(isinstance(item, str) for item in items):
                raise turns_in_loops(loop, place.path, items)
            raise no_microbatches(loop, place.path, placer.stopped.get(place.path, ()))


def _refuse_unknown(dim: str, dims: set[str], graph: Graph) -> None:
    """Where it is a dimension of no operation."""
    whole = _carriers(graph, dim)
    if whole:
        raise PlanError(
            message(
                f"the plan places `{dim}`, which nothing can cut: it is whole everywhere",
                f"it is an axis of {_some(whole)}",
                remedy="Leave it out, or write the operation with a dimension that can be cut.",
            )
        )
    known = dims | {loop.over for _, loop in walk.loops(graph) if loop.over}
    raise PlanError(
        message(
            f"the plan places `{dim}`, which is no dimension of the graph",
            f"dimensions: {_some(sorted(known))}",
            *_called_otherwise(graph, dim),
            remedy="Name one of them; graph.show() prints where they occur.",
        )
    )


def _called_otherwise(graph: Graph, local: str) -> list[str]:
    """Where the signature of an operation has a dimension that the graph calls by another name."""
    found = {place.path: name for place, node in walk.operations(graph) for dim, name in node.names if dim == local}
    return [f"`{local}` of `{path}` is called `{name}` here" for path, name in list(found.items())[:2]]


def _carriers(graph: Graph, dim: str) -> list[str]:
    found: list[str] = []
    for node in graph.nodes:
        if any(dim in kind.names for kind in node.results) or (isinstance(node, Loop) and node.over == dim):
            found.append(f"`{node.path}`")
        if isinstance(node, Loop):
            found.extend(_carriers(node.body, dim))
    return found


def _some(items: list[str], most: int = 12) -> str:
    shown = ", ".join(items[:most])
    return shown + (f", ... ({len(items)} in all)" if len(items) > most else "")
