"""What a worker is given of a job: texts. It reads the graph and the plan, and opens the sources itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import jax

from combinators.errors import TapestryError, message
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.mesh import mesh as make_mesh
from tapestry_jax.plan import Plan
from tapestry_jax.storage.opening import Opened
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.cluster.totals import rounds
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.kept.origins import outline
from tapestry_jax.streaming.parts import Pass, Split
from tapestry_jax.streaming.split import split
from tapestry_jax.streaming.turn import Programs


@dataclass(frozen=True, eq=False)
class Handed:
    """A pass of a job, as it travels.

    Attributes:
      key: of the pass: equal ones are the same work.
      folder: of the job, absolute.
      graph: the text of its file; where no file can hold it the graph, which Dask pickles.
      graph_key: its key.
      plan: the text of its file.
      axes: of the mesh, each of size 1.
      dims: the streamed dimensions.
      outline: of the passes.
      part: the number of the pass among the parts.
      step: the number of the pass.
      sources: how what the pass reads is opened, by slot, and its fingerprint.
      ahead: bytes of the buffers.
      settings: of JAX, by name.
    """

    key: str
    folder: str
    graph: str | Graph
    graph_key: str
    plan: str
    axes: tuple[str, ...]
    dims: tuple[str, ...]
    outline: str
    part: int
    step: int
    sources: Mapping[int, tuple[Opened, str]]
    ahead: int
    settings: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handed) and (self.key, self.folder) == (other.key, other.folder)

    def __hash__(self) -> int:
        return hash((self.key, self.folder))


@dataclass(frozen=True, eq=False)
class Built:
    """A job on a worker: its programs, compiled once, and its sources, opened once.

    Attributes:
      handed: what it is made from.
    """

    handed: Handed

    @cached_property
    def plan(self) -> Plan:
        """The plan, on one CPU of this process."""
        handed = self.handed
        graph = Graph.from_json(handed.graph) if isinstance(handed.graph, str) else handed.graph
        if graph.key != handed.graph_key:
            raise _another("graph", handed.graph_key, graph.key)
        mesh = make_mesh(jax.devices("cpu")[:1], **dict.fromkeys(handed.axes, 1))
        return Plan.from_json(handed.plan, graph, mesh)

    @cached_property
    def split(self) -> Split:
        """Its passes."""
        found = split(self.plan.schedule, self.handed.dims)
        if outline(found) != self.handed.outline:
            raise _another("plan", self.handed.outline, outline(found))
        return found

    @cached_property
    def programs(self) -> Programs:
        """What runs on the device."""
        return Programs(self.split, self.plan.mesh)

    @cached_property
    def part(self) -> Pass:
        """The pass."""
        found = self.split.parts[self.handed.part]
        assert isinstance(found, Pass)
        return found

    @cached_property
    def rounds(self) -> list[tuple[Pass, Programs]]:
        """What the pass is turned as: once for every round of its scans, and as itself."""
        # Of each round the programs are its own: it carries other things than the pass.
        found = [(part, Programs(self.split, self.plan.mesh)) for part in rounds(self.part)]
        return [*found, (self.part, self.programs)]

    @cached_property
    def stored(self) -> dict[int, Stored]:
        """What the pass reads, by slot."""
        found: dict[int, Stored] = {}
        for slot, (how, fingerprint) in self.handed.sources.items():
            found[slot] = how.again()
            if (got := found[slot].fingerprint()) != fingerprint:
                raise _another(f"source {how.shown}", fingerprint, got)
        return found


@lru_cache(maxsize=4)
def built(handed: Handed) -> Built:
    """The job on this worker; tasks of the same pass share it."""
    return Built(handed)


def as_handed(graph: Graph) -> str | Graph:
    """The text of a graph, or itself where no file can hold it, or none that names only what is listed."""
    try:
        text = graph.to_json()
        Graph.from_json(text)
    except TapestryError:
        return graph
    return text


def _another(what: str, expected: str, got: str) -> StreamError:
    remedy = "Give workers the same library, the same modules and the same files as the driver has."
    return StreamError(message(f"a worker has another {what}", f"expected {expected}", f"got {got}", remedy=remedy))
