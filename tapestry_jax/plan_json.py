"""Plans as files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType

from combinators.errors import FormatError, PlanError, TapestryError, message
from combinators.graph import Graph
from tapestry_jax.mesh import mesh as make_mesh
from tapestry_jax.plan import Plan, make_plan
from tapestry_jax.planning.carriers import read_accumulate
from tapestry_jax.planning.entries import Entries, read_entries
from tapestry_jax.planning.items import Chunks, Halo, Item, Ring, Striped, chunks, halo, ring, striped
from tapestry_jax.planning.layouts import Named
from tapestry_jax.planning.mesh_shape import MeshShape
from tapestry_jax.planning.platforms import read_platforms

_FORMAT, _VERSION = "tapestry-plan", 1


def plan_to_json(plan: Plan) -> str:
    """Store a plan: what the user asked for, the key of its graph, the shape of its mesh, and a checksum."""
    content: dict[str, Any] = {
        "graph": plan.graph.key,
        "mesh": [[name, size] for name, size in MeshShape.of(plan.mesh).axes],
        "entries": _entries(plan.entries),
        "ops": _written(plan.ops),
        "inputs": _written(plan.inputs),
        "outputs": _written(plan.outputs),
        "accumulate": [list(pair) for pair in plan.accumulate],
        "platforms": list(plan.platforms),
    }
    return json.dumps(
        {"format": _FORMAT, "version": _VERSION, "checksum": _checksum(content), "content": content}, indent=1
    )


def plan_from_json(text: str, graph: Graph, mesh: Any = None) -> Plan:
    """Read a plan back for its graph.

    Raises:
      FormatError: when the text is truncated or edited, or belongs to another graph or mesh.
      PlanError: when `graph` is none.
    """
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "a stored plan is read for a graph",
                f"got {type(graph).__name__}: {graph!r:.80}",
                remedy="Pass the graph that it was made for: tp.Plan.from_json(text, tp.trace(f, *specs)).",
            )
        )
    content = _content(text)
    if content["graph"] != graph.key:
        raise FormatError(
            message(
                "the plan belongs to another graph",
                f"stored key {content['graph'][:16]}..., this graph has {graph.key[:16]}...",
                remedy="Plan this graph again.",
            )
        )
    try:
        return _rebuilt(content, graph, mesh)
    except FormatError:
        raise
    except (TapestryError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            message(
                "a plan file does not say a plan of this graph",
                f"{type(error).__name__}: {error}",
                remedy="It was edited, or the inputs have other names; plan again.",
            )
        ) from error


def _rebuilt(content: dict[str, Any], graph: Graph, mesh: Any) -> Plan:
    axes = {str(name): int(size) for name, size in content["mesh"]}
    if mesh is None:
        mesh = _mesh(axes)
    elif MeshShape.of(mesh) != MeshShape(tuple(axes.items())):
        raise FormatError(
            message(
                "the plan was made for another mesh",
                f"stored {MeshShape(tuple(axes.items()))}, got {MeshShape.of(mesh)}",
                remedy="Pass a mesh of the stored shape, or plan again.",
            )
        )
    shape = MeshShape(tuple(axes.items()))
    ops, inputs, outputs = (_read(content[name], shape, name) for name in ("ops", "inputs", "outputs"))
    entries = read_entries(_items(content["entries"]), shape, "the stored plan")
    accumulate = read_accumulate(dict(content["accumulate"]))
    platforms = read_platforms(content["platforms"])
    return make_plan(graph, mesh, entries, ops, inputs, outputs, accumulate, platforms)


def _content(text: str) -> dict[str, Any]:
    try:
        stored = json.loads(text)
    except (json.JSONDecodeError, TypeError) as error:
        raise FormatError(
            message(
                "a plan file is not JSON",
                str(error),
                remedy="It was truncated or edited; store the plan again with plan.to_json().",
            )
        ) from error
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise FormatError(
            message("this is no plan file", f"got {str(stored)[:80]}", remedy="Pass plan.to_json() text.")
        )
    if stored.get("version") != _VERSION:
        raise FormatError(
            message(
                f"a plan file has version {stored.get('version')!r}",
                f"expected {_VERSION}",
                remedy="Plan again with this version of the library.",
            )
        )
    content = stored.get("content")
    if not isinstance(content, dict) or _checksum(content) != stored.get("checksum"):
        raise FormatError(
            message(
                "a plan file does not match its checksum",
                remedy="It was truncated or edited; store the plan again with plan.to_json().",
            )
        )
    return content


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _entries(entries: Entries) -> list[Any]:
    return [[dim, [_item(item) for item in items]] for dim, items in entries]


def _item(item: Item) -> Any:
    match item:
        case Chunks(count, size):
            return {"chunks": count} if count is not None else {"chunk_size": size}
        case Ring(axis):
            return {"ring": axis}
        case Halo(depth):
            return {"halo": depth}
        case Striped(axes):
            return {"striped": list(axes)}
        case _:
            return item


def _items(stored: Any) -> dict[str, Any]:
    return {dim: tuple(item if isinstance(item, str) else _stored(item) for item in items) for dim, items in stored}


def _stored(item: Any) -> Item:
    ((kind, value),) = item.items()
    known: dict[str, Callable[[Any], Item]] = {
        "chunks": chunks,
        "chunk_size": lambda size: chunks(size=size),
        "ring": ring,
        "halo": halo,
        "striped": lambda axes: striped(*axes),
    }
    return known[kind](value)


def _written(named: Any) -> list[Any]:
    return [[name, _entries(entries)] for name, entries in named]


def _read(stored: Any, mesh: MeshShape, where: str) -> Named:
    return tuple((str(name), read_entries(_items(entries), mesh, f"{where}[{name!r}]")) for name, entries in stored)


def _mesh(axes: dict[str, int]) -> Any:
    needed = 1
    for size in axes.values():
        needed *= size
    if needed <= jax.device_count():
        return make_mesh(None, **axes)
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
