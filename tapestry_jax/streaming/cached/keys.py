"""By what a value is known again: what computes it, of which sources, and under which settings."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from combinators.errors import KernelError
from combinators.frozen import dataclass
from combinators.graphs.given import given
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Ref
from combinators.settings import settings
from tapestry_jax.plan import Plan
from tapestry_jax.storage.errors import WrittenError
from tapestry_jax.storage.files.joined import Joined, Numbers
from tapestry_jax.storage.in_memory import InMemory
from tapestry_jax.storage.opening import opened
from tapestry_jax.storage.places import POSTGRES
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.cached.code import NoKeyError
from tapestry_jax.streaming.cached.contents import content
from tapestry_jax.streaming.moving.arriving import Arriving


@dataclass(frozen=True)
class Computed:
    """What computes a value, whatever its sources hold.

    Attributes:
      text: a checksum of operations, types and settings; equal for values that are computed alike only.
      inputs: the positions of the inputs that it is computed of.
    """

    text: str
    inputs: tuple[int, ...]


def computed(plan: Plan, values: Iterable[Ref], known: dict[int, str] | None = None) -> dict[Ref, Computed]:
    """What computes some values of a program; those of which nothing tells it are left out.

    Args:
      plan: of the program.
      values: of its graph.
      known: what nodes compute, as it was just found out.
    """
    known = {} if known is None else known
    graph, found = plan.graph, dict[Ref, Computed]()
    positions = {index: number for number, index in enumerate(_inputs(graph))}
    under = _under(plan)
    for ref in values:
        part = given(graph, (), [("value", ref)])
        try:
            lines = [under, _nameless(part.graph).key]
            for index in part.nodes:
                if index not in known:
                    known[index] = content(graph, index)
                lines.append(known[index])
        except (KernelError, NoKeyError):
            continue
        text = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        found[ref] = Computed(text, tuple(positions[entering.node] for entering in part.entering))
    return found


def keys(values: Mapping[Ref, Computed], sources: Sequence[Stored]) -> dict[Ref, str]:
    """The keys of values that are computed of these sources as they are now."""
    told = {number: source_told(sources[number]) for each in values.values() for number in each.inputs}
    found = dict[Ref, str]()
    for ref, each in values.items():
        texts = [told[number] for number in each.inputs]
        lines = [text for text in texts if text is not None]
        if len(lines) == len(texts):
            found[ref] = hashlib.sha256("\n".join([each.text, *lines]).encode()).hexdigest()
    return found


def source_told(source: Stored) -> str | None:
    """Which source it is and what it holds; None where nothing tells that it has changed.

    A file is told by its place as well: others may have its size and its times.
    """
    if isinstance(source, InMemory | Numbers):
        return source.fingerprint()
    if isinstance(source, Joined):
        told = [source_told(part) for part in source.parts]
        return None if None in told else f"joined {told}"
    place, how = place_told(source), opened(source)
    if place is None:
        return None
    try:
        return f"{place} {how and how.format} {source.fingerprint()}"
    except WrittenError:
        return None  # what is read from it is of no place


def place_told(source: Stored) -> str | None:
    """Where a source lies, however it was written; None of what lies in memory, or may change without a trace."""
    if isinstance(source, Arriving | InMemory):
        return None
    if isinstance(source, Numbers):
        return "numbers"
    if isinstance(source, Joined):
        told = [place_told(part) for part in source.parts]
        return None if None in told else f"joined {told}"
    how = opened(source)
    # Servers need not tell that what they serve has changed; a database is asked for a checksum of the rows.
    if how is not None and "://" in how.path and not how.path.lower().startswith(POSTGRES):
        return None
    if how is None:
        return f"{type(source).__qualname__} {source.where}"
    path, tensor = how.path, how.tensor
    if "://" not in path:
        path, inner = str(Path(path).resolve()), (Path(path) / (tensor or "")).resolve()
        # A folder in a folder has a path of its own.
        path, tensor = (str(inner), None) if inner.is_dir() else (path, tensor)
    return repr((path, tensor, *([how.query] if how.query is not None else [])))


def _nameless(graph: Graph) -> Graph:
    """A graph whose key does not tell how dimensions are called, but which of them are one."""
    kinds = [kind for node in graph.nodes for kind in node.results]
    names = {name for kind in kinds for name in kind.names if name is not None}
    bound = {name for node in graph.nodes if isinstance(node, Apply) for _, name in node.names}
    return replace(graph, suggested=frozenset(names | bound))


def _inputs(graph: Graph) -> list[int]:
    return [index for index, node in enumerate(graph.nodes) if isinstance(node, Input)]


def _under(plan: Plan) -> str:
    """What else decides which numbers a program gives."""
    device = plan.mesh.devices.flat[0]
    kind = f"{device.platform} {device.device_kind}"
    told: dict[str, Any] = {name: str(value) for name, value in sorted(settings().items())}
    return f"{importlib.metadata.version('tapestry-jax')} jax {jax.__version__} {kind} {plan.accumulate} {told}"
