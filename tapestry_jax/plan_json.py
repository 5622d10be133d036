"""Plans as files. They name nothing that could be called: axes, numbers and dimensions alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import jax
from jax.sharding import AbstractMesh, AxisType

from combinators.errors import FormatError, PlanError, TapestryError, message, spelt
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.key import node_marks
from combinators.index_space.tensor_type import TensorType
from combinators.stored.json import (
    check_length,
    check_storable,
    checksum,
    entries,
    integer,
    listed,
    malformed,
    read_json,
    readable_errors,
    text_of,
)
from combinators.stored.step_budget import bounded_steps
from tapestry_jax.mesh import mesh as make_mesh
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import (
    Chunks,
    Halo,
    Item,
    Padded,
    Ring,
    Striped,
    chunks,
    halo,
    padded,
    ring,
    striped,
)
from tapestry_jax.planning.entries.layouts import Named
from tapestry_jax.planning.entries.read import Entries, read_entries
from tapestry_jax.planning.entries.remat import read_remat
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.rewrites.carriers import read_accumulate
from tapestry_jax.planning.rewrites.platforms import read_platforms

Made = TypeVar("Made")
Make = Callable[[Graph, Any, Asked], Made]

_FORMAT, _VERSION = "tapestry-plan", 1
_REMEDY = "It was truncated or edited; store the plan again with plan.to_json()."
_CONTENT = ("graph", "mesh", "entries", "ops", "inputs", "outputs", "accumulate", "platforms")
_LATER: dict[str, Any] = {"remat": []}  # what files say only where it was asked for
_MOST_DEVICES = 2**20
_MARKS = 4096  # characters in a line of a file
_PER_NODE = 2000  # characters that a node of the graph counts for, when the work of planning is bounded


def plan_to_json(graph: Graph, mesh: Any, asked: Asked) -> str:
    """Store a plan: what the user asked for, the key of its graph, the shape of its mesh, and a checksum."""
    content: dict[str, Any] = {
        "graph": graph.key,
        "mesh": [[name, size] for name, size in MeshShape.of(mesh).axes],
        "entries": _entries(asked.entries),
        "ops": _written(asked.ops),
        "inputs": _written(asked.inputs),
        "outputs": _written(asked.outputs),
        "accumulate": [list(pair) for pair in asked.accumulate],
        "platforms": list(asked.platforms),
    }
    if asked.remat:
        content["remat"] = [list(pair) for pair in asked.remat]
    check_storable(content, "the plan", PlanError)
    marks = "".join(mark for _, mark in node_marks(graph))
    stored = {
        "format": _FORMAT,
        "version": _VERSION,
        "checksum": _checksum(content),
        "content": content,
        # For people alone: they say where another graph differs. Nothing is decided by them.
        "marks": [marks[start : start + _MARKS] for start in range(0, len(marks), _MARKS)],
    }
    return check_length(json.dumps(stored, indent=1), "the plan", PlanError)


def plan_from_json(text: str, graph: Graph, mesh: Any, make: Make[Made]) -> Made:
    """Read a plan back for its graph.

    Args:
      text: what `plan_to_json` gave.
      graph: the graph it was made for.
      mesh: None for one of the stored shape.
      make: graph, mesh and what was asked -> plan.

    Raises:
      FormatError: when the text is truncated or edited, or belongs to another graph or mesh.
      PlanError: when `graph` is none.
    """
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "a stored plan is read for a graph",
                f"got {type(graph).__name__}: {spelt(graph)}",
                remedy="Pass the graph that it was made for: tp.Plan.from_json(text, tp.trace(f, *specs)).",
            )
        )
    with readable_errors():
        return _plan(text, graph, mesh, make)


def _plan(text: str, graph: Graph, mesh: Any, make: Make[Made]) -> Made:
    head = _head(text)
    content = entries(_content(head), _CONTENT, "the plan", _LATER)
    key = text_of(content["graph"], "the plan, graph")
    if key != graph.key:
        raise FormatError(
            message(
                "the plan belongs to another graph",
                f"stored key {key[:16]}..., this graph has {graph.key[:16]}...",
                *_differing(head.get("marks"), graph),
                remedy="Plan this graph again.",
            )
        )
    try:
        with bounded_steps(len(text) + _PER_NODE * _count(graph)):
            return _rebuilt(content, graph, mesh, make)
    except FormatError:
        raise
    except (TapestryError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise FormatError(
            message(
                "a plan file does not say a plan of this graph",
                f"{type(error).__name__}: {error}",
                remedy="It was edited, or the inputs have other names; plan again.",
            )
        ) from error


def _rebuilt(content: dict[str, Any], graph: Graph, mesh: Any, make: Make[Made]) -> Made:
    axes = dict(_axes(content["mesh"]))
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
    inputs = _padded_before(inputs, {node.name: node.results[0] for node in graph.inputs}, shape)
    outputs = _padded_before(outputs, {name: graph.type_of(ref) for name, ref in graph.outputs}, shape)
    own = read_entries(_items(content["entries"], "the plan, entries"), shape, "the stored plan")
    pairs = _pairs(content["accumulate"], "the plan, accumulate")
    dtypes = {s: None if dtype is None else text_of(dtype, "the plan, accumulate") for s, dtype in pairs}
    accumulate = read_accumulate(dtypes)
    named = listed(content["platforms"], "the plan, platforms")
    platforms = read_platforms(tuple(text_of(name, "the plan, platforms") for name in named))
    remat = read_remat(dict(_pairs(content["remat"], "the plan, remat")))
    return make(graph, mesh, Asked(own, ops, inputs, outputs, accumulate, platforms, remat))


def _differing(stored: Any, graph: Graph) -> list[str]:
    """Where a graph differs first from the one of a stored plan, as far as its file says."""
    parts = cast("list[Any]", stored) if isinstance(stored, list) else []
    text = "".join(part for part in parts if isinstance(part, str))
    if not text:
        return []
    marks = [text[start : start + 4] for start in range(0, len(text), 4)]
    own = node_marks(graph)
    differing = (path for (path, mark), other in zip(own, marks, strict=False) if mark != other)
    last = own[min(len(own), len(marks)) - 1][0]
    return [f"the first that differs is `{next(differing, last)}`"]


def _head(text: object) -> dict[str, Any]:
    stored = read_json(text, "a plan file", _REMEDY, "a plan file is not JSON")
    if not isinstance(stored, dict) or cast("dict[str, Any]", stored).get("format") != _FORMAT:
        raise FormatError(
            message("this is no plan file", f"got {str(stored)[:80]}", remedy="Pass plan.to_json() text.")
        )
    return cast("dict[str, Any]", stored)


def _content(head: dict[str, Any]) -> dict[str, Any]:
    version = head.get("version")
    if type(version) is not int or version != _VERSION:
        newer = type(version) is int and version > _VERSION
        raise FormatError(
            message(
                f"a plan file has version {spelt(version, 40)}{', newer than this library reads' * newer}",
                f"expected {_VERSION}",
                remedy=f"{'Update the library, or plan' if newer else 'Plan'} again with this version of the library.",
            )
        )
    content = head.get("content")
    if not isinstance(content, dict) or _checksum(content) != head.get("checksum"):
        raise FormatError(message("a plan file does not match its checksum", remedy=_REMEDY))
    return cast("dict[str, Any]", content)


def _checksum(content: Any) -> str:
    return checksum(content, None)


def _count(graph: Graph) -> int:
    """The nodes of a graph, those in loops too."""
    return len(graph.nodes) + sum(len(loop.body.nodes) for _, loop in walk.loops(graph))


def _entries(given: Entries) -> list[Any]:
    return [[dim, [_item(item) for item in items]] for dim, items in given]


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
        case Padded(axes):
            return {"padded": list(axes)}
        case str():
            return item


def _pairs(stored: Any, where: str) -> list[tuple[str, Any]]:
    """A list of names, each once, and what they stand for."""
    pairs = [tuple(listed(item, where)) for item in listed(stored, where)]
    if not all(len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise malformed(where, "pairs of a name and what it stands for", stored)
    if len({pair[0] for pair in pairs}) < len(pairs):
        raise malformed(where, "names that differ", [pair[0] for pair in pairs])
    return [(pair[0], pair[1]) for pair in pairs]


def _axes(stored: Any) -> list[tuple[str, int]]:
    """The axes of the stored mesh."""
    where = "the plan, mesh"
    axes = [(name, integer(size, where)) for name, size in _pairs(stored, where)]
    if not axes or any(size < 1 for _, size in axes) or math.prod(size for _, size in axes) > _MOST_DEVICES:
        raise malformed(where, f"axes of at least one device, and at most {_MOST_DEVICES} devices", stored)
    return axes


def _items(stored: Any, where: str) -> dict[str, Any]:
    return {
        dim: tuple(
            item if isinstance(item, str) else _stored(item, f"{where}[{dim!r}]")
            for item in listed(items, f"{where}[{dim!r}]")
        )
        for dim, items in _pairs(stored, where)
    }


def _stored(item: Any, where: str) -> Item:
    known: dict[str, Callable[[Any], Item]] = {
        "chunks": chunks,
        "chunk_size": lambda size: chunks(size=size),
        "ring": ring,
        "halo": halo,
        "striped": lambda axes: striped(*listed(axes, where)),
        "padded": lambda axes: padded(*listed(axes, where)),
    }
    kinds: Sequence[str] = list(cast("dict[str, Any]", item)) if isinstance(item, dict) else ()
    if len(kinds) != 1 or kinds[0] not in known:
        raise malformed(where, f"a mesh axis, or one of {', '.join(known)}", item)
    return known[kinds[0]](item[kinds[0]])


def _written(named: Any) -> list[Any]:
    return [[name, _entries(given)] for name, given in named]


def _read(stored: Any, mesh: MeshShape, where: str) -> Named:
    return tuple(
        (name, read_entries(_items(part, f"the plan, {where}[{name!r}]"), mesh, f"{where}[{name!r}]"))
        for name, part in _pairs(stored, f"the plan, {where}")
    )


def _padded_before(named: Named, types: Mapping[str, TensorType], mesh: MeshShape) -> Named:
    """The same layouts; those that do not divide are from files older than `padded`, when all such were padded."""

    def items(name: str, dim: str, given: tuple[Item, ...]) -> tuple[Item, ...]:
        kind = types.get(name)
        axes = tuple(item for item in given if isinstance(item, str))
        if kind is None or dim not in kind.names or len(axes) < len(given):
            return given
        return given if kind.shape[kind.names.index(dim)] % mesh.size(axes) == 0 else (padded(*axes),)

    return tuple((name, tuple((dim, items(name, dim, given)) for dim, given in part)) for name, part in named)


def _mesh(axes: dict[str, int]) -> Any:
    needed = 1
    for size in axes.values():
        needed *= size
    if needed <= jax.device_count():
        return make_mesh(None, **axes)
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
