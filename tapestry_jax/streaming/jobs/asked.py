"""What `tp.stream` is given, read: a plan, the dimensions that are streamed, and sources and sinks in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.arguments import read_list, read_name
from combinators.arrows.tracing import trace
from combinators.errors import FormatError, MeshError, PlanError, message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.by_hand import plan as plan_by_hand
from tapestry_jax.mesh import mesh as make_mesh
from tapestry_jax.plan import Plan
from tapestry_jax.planning.entries.items import Chunks, Halo
from tapestry_jax.planning.rewrites.carriers import wide_enough
from tapestry_jax.storage.in_memory import stored
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.moving.arriving import Arriving, arrives


def read_sources(sources: Any, program: Any) -> tuple[Stored, ...]:
    """What the inputs are read from, in order.

    Raises:
      PlanError: for a wrong number, unknown names, or other sizes and dtypes than the program has.
      FormatError: for what is no array.
    """
    graph = program.graph if isinstance(program, Plan) else program
    names = [node.name for node in graph.inputs] if isinstance(graph, Graph) else None
    if isinstance(sources, Mapping) and names is not None and {*sources} == {*names}:
        given = [sources[name] for name in names]
    elif isinstance(sources, Mapping):
        raise PlanError(
            message(
                "sources of a stream are named as the inputs of its graph are",
                f"expected {', '.join(names) if names is not None else 'a sequence: nothing is traced yet'}",
                f"got {', '.join(map(repr, sources))}",
                remedy="Name each input once, or pass them in order: sources=(x, w).",
            )
        )
    else:
        listed = list(sources) if isinstance(sources, tuple | list) else [sources]
        given = jax.tree.leaves(listed, is_leaf=arrives)
    if isinstance(graph, Graph):
        # What is missing or too much is told below.
        nodes = [*graph.inputs, *[None] * len(given)]
        found = tuple(_read_source(each, node) for each, node in zip(given, nodes, strict=False))
        _check_sources(graph, found)
        return found
    return tuple(_read_source(each, None) for each in given)


def _read_source(source: Any, node: Any) -> Stored:
    if isinstance(source, Stored):
        return source
    if callable(getattr(source, "read", None)) and hasattr(source, "chunks") and hasattr(source, "fingerprint"):
        remedy = (
            "Give it `beside(sizes)`, as storage.Stored says: storage.Beside(0) where it reads straight into arrays."
        )
        headline = "a source of a stream does not say what memory reading takes beside the arrays"
        raise PlanError(message(headline, f"got {spelt(source)}", remedy=remedy))
    if isinstance(source, str | PathLike):
        remedy = "Open it: tp.open('x.npy')."
        raise PlanError(
            message("a source of a stream is a path, not what lies there", f"got {spelt(source)}", remedy=remedy)
        )
    if not arrives(source):
        return _in_memory(source)
    if node is None:
        remedy = (
            "Trace the program for all rows first: tp.trace(program, jax.ShapeDtypeStruct((10_000, 8), 'float32'))."
        )
        raise PlanError(
            message("nothing says how many rows an iterator gives", f"got {type(source).__name__}", remedy=remedy)
        )
    if not node.results[0].shape:
        details = (f"expected {node.results[0]}", f"got {type(source).__name__}")
        raise PlanError(message(f"`{node.name}` has no rows that could arrive", *details, remedy="Pass an array."))
    return Arriving(source, node.name, node.results[0])


def _in_memory(given: Any) -> Stored:
    try:
        return stored(given)
    except FormatError as error:
        if isinstance(error.__cause__, jax.errors.TracerArrayConversionError):
            raise _inside() from error
        raise


def require_outside() -> None:
    """Raise inside of a function that JAX traces.

    Raises:
      StreamError: there, as a turn is a program of its own, which the host starts.
    """
    try:
        np.asarray(jnp.zeros(()))
    except jax.errors.TracerArrayConversionError as error:
        raise _inside() from error


def _inside() -> StreamError:
    remedy = "Run it outside of jax.jit, jax.vmap and jax.grad; gradients are taken of programs, not of streams."
    return StreamError(message("a stream runs on the host, and cannot be traced by JAX", remedy=remedy))


def _check_sources(graph: Graph, sources: Sequence[Stored]) -> None:
    wrong = [] if len(sources) == len(graph.inputs) else [f"it has {len(graph.inputs)} inputs, got {len(sources)}"]
    for node, source in zip(graph.inputs, sources, strict=False):
        kind = node.results[0]
        if tuple(source.shape) != kind.shape or source.dtype != kind.dtype:
            wrong.append(
                f"{node.name}: expected {kind}, got {source.dtype.name} {tuple(source.shape)} of {source.where}"
            )
    if wrong:
        remedy = "Pass sources of these sizes and dtypes, in the order of the inputs, or trace again for the new ones."
        narrow = [f"{source.dtype.name} of {source.where}" for source in sources if _is_too_wide(source)]
        if narrow:
            wrong.append(f"JAX has 64 bits off: {', '.join(narrow)}")
            remedy = 'Write jax.config.update("jax_enable_x64", True), or store them in 32 bits.'
        raise PlanError(message(f"`{graph.name}` was traced for other sources", *wrong, remedy=remedy))


def _is_too_wide(source: Stored) -> bool:
    """Whether JAX would take another dtype for this one."""
    return jax.dtypes.canonicalize_dtype(source.dtype) != source.dtype


def spec_of(source: Stored) -> TensorType:
    """A source as `tp.trace` takes it."""
    return TensorType.make(source.names or (None,) * len(source.shape), source.shape, source.dtype)


def read_graph(program: Any, sources: Sequence[Stored]) -> Plan | Graph:
    """The program as it is where it is planned or traced, else traced for its sources."""
    return program if isinstance(program, Plan | Graph) else trace(program, *map(spec_of, sources))


def read_plan(program: Plan | Graph, over: Any, mesh: Any) -> tuple[Plan, tuple[str, ...]]:
    """The plan, and the dimensions that the host streams.

    Raises:
      PlanError: where no dimension is streamed, or `over` names one that the plan does not take in chunks.
      MeshError: where devices of the mesh belong to other processes.
    """
    if isinstance(program, Plan):
        chunked = [dim for dim, items in program.entries if any(isinstance(item, Chunks) for item in items)]
        dims = chunked if over is None else read_names(over)
        missing = [dim for dim in dims if dim not in chunked]
        if missing or not dims or mesh is not None:
            what = (
                "is on a mesh of its own" if mesh is not None else f"takes {', '.join(chunked) or 'nothing'} in chunks"
            )
            remedy = "Name one of these, or plan again: tp.plan(graph, mesh, {'row': tp.chunks(size=4096)})."
            raise PlanError(message(f"this plan {what}", f"got over={over!r}", remedy=remedy))
        _check_own(program.mesh)
        return program, tuple(dims)
    if not isinstance(over, Mapping):
        remedy = "Write over={'row': tp.chunks(size=4096)}."
        raise PlanError(message("a stream takes a dimension in chunks", f"got over={over!r}", remedy=remedy))
    known: Mapping[Any, Any] = over
    dims = tuple(dim for dim, items in known.items() if any(isinstance(item, Chunks) for item in _listed(items)))
    if not dims:
        remedy = "Write over={'row': tp.chunks(size=4096)}."
        raise PlanError(message("a stream takes a dimension in chunks", f"got over={over!r}", remedy=remedy))
    chosen = make_mesh(jax.local_devices()[:1], device=1) if mesh is None else mesh
    _check_own(chosen)
    return plan_by_hand(program, chosen, known, accumulate=wide_enough(program, dims)), dims


def _check_own(mesh: Any) -> None:
    """A job reads and writes for the devices of its process: of others it has no cells."""
    devices: list[Any] = list(mesh.devices.flat) if isinstance(mesh, jax.sharding.Mesh) else []
    others = sum(each.process_index != jax.process_index() for each in devices)
    if others:
        told = f"{others} of {len(devices)} devices of the mesh belong to other processes"
        remedy = "Pass mesh=tp.mesh(jax.local_devices(), data=...), and let each process read its share of the rows."
        raise MeshError(message("a stream runs on the devices of its own process", told, remedy=remedy))


def sizes_left_out(over: Any) -> list[str]:
    """The dimensions with a halo that entries cut nowhere: their chunks are left to the memory."""
    if not isinstance(over, Mapping):
        return []
    known: Mapping[Any, Any] = over
    listed = {dim: _listed(items) for dim, items in known.items()}
    if any(isinstance(item, Chunks) for items in listed.values() for item in items):
        return []
    return [dim for dim, items in listed.items() if items and all(isinstance(item, Halo) for item in items)]


def with_sizes(over: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with chunks for some dimensions, before what they have."""
    return {dim: (sizes[dim], *_listed(items)) if dim in sizes else items for dim, items in over.items()}


def read_names(over: Any) -> list[str]:
    """Names of dimensions, one or several.

    Raises:
      PlanError: for anything else.
    """
    listed = [over] if isinstance(over, str) else read_list(over, "over= of tp.stream", PlanError)
    if not listed:
        remedy = 'Name a dimension, such as "row", or leave over= out.'
        raise PlanError(message("over= of tp.stream names no dimension", f"got {over!r}", remedy=remedy))
    return [read_name(dim, "a dimension in over= of tp.stream", PlanError) for dim in listed]


def _listed(items: Any) -> Sequence[Any]:
    return items if isinstance(items, tuple | list) else (items,)
