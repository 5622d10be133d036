"""Programs on tensors that need not fit into memory: `tp.stream` from a fabric into the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.fabric.catalogue import writes
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.streams.sinks import FabricCreation, FabricSink
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.fabric.tensors.records import Version
from tapestry_jax.plan import Plan
from tapestry_jax.storage.protocols import Beside, Names
from tapestry_jax.streaming.jobs.stream import stream


@dataclass(frozen=True)
class Asked:
    """What is asked of a stream, as `tp.stream` takes it.

    Attributes:
      over: entries, or names of dimensions.
      memory: bytes, or None.
      checkpoint: a folder, or None.
    """

    over: Any
    memory: Any = None
    checkpoint: Any = None


@dataclass(frozen=True)
class Streamed:
    """What a stream gave.

    Attributes:
      plan: by which it ran.
      dims: the dimensions that were streamed.
      results: for each output an array, or the source of what was written under its name, which is still to be named.
    """

    plan: Plan
    dims: tuple[str, ...]
    results: list[Any]

    def close(self) -> None:
        """Let go of what was written."""
        for result in self.results:
            if isinstance(result, FabricSource):
                result.close()


def run_streamed(
    opened: Opened,
    program: Any,
    asked: Asked,
    inputs: tuple[Sequence[str], Sequence[Version]],
    outputs: Sequence[str],
) -> Streamed:
    """Run a program over pieces of its inputs.

    Args:
      opened: the fabric.
      program: a graph, or a plan.
      asked: how it is streamed.
      inputs: names, and the versions that are read.
      outputs: under which names those that are made piece by piece are written.

    Raises:
      PlanError: for what cannot be streamed.
      FabricError: for blocks that are lost, or cannot be written.
    """
    sources = _sources(opened, *inputs)
    made: list[FabricSink] = []
    try:
        mesh = None if isinstance(program, Plan) else opened.mesh
        # What is made piece by piece does not depend on the memory, and without sinks it would be held there.
        unbound = stream(program, asked.over, sources, mesh=mesh)
        known = [name for name, _ in unbound.planned.graph.outputs]
        pieces = [n for n, slot in enumerate(unbound.split.outputs) if slot in {*unbound.split.written}]
        sinks = {known[n]: _Watched(opened, outputs[n], made) for n in pieces}
        more = {"memory": asked.memory, "checkpoint": asked.checkpoint}
        job = stream(program, asked.over, sources, sinks, mesh=mesh, **more)
        return Streamed(job.planned, job.dims, jax.tree.leaves(job.run()))
    except BaseException:
        for sink in made:
            sink.close()
        raise
    finally:
        for source in sources:
            source.close()


@dataclass(frozen=True)
class _Watched:
    """A name for a result, whose sink is closed where the stream fails."""

    opened: Opened
    name: str
    made: list[FabricSink]

    @property
    def where(self) -> str:
        """The place, for people, and for a job that goes on."""
        return self._creation.where

    @property
    def has_chunks(self) -> bool:
        """As `FabricCreation.has_chunks`."""
        return self._creation.has_chunks

    def beside(
        self, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any], sizes: tuple[int, ...]
    ) -> Beside:
        """As `FabricCreation.beside`."""
        return self._creation.beside(shape, chunks, dtype, sizes)

    def make(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> FabricSink:
        """As `FabricCreation.make`."""
        return self._kept(self._creation.make(shape, dtype, names, chunks))

    def again(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> FabricSink:
        """As `FabricCreation.again`."""
        sink = self._creation.again(shape, dtype, names, chunks)
        # What has its name already is found only where names are given.
        assert isinstance(sink, FabricSink)
        return self._kept(sink)

    @property
    def _creation(self) -> FabricCreation:
        return FabricCreation(self.opened, self.name, (), overwrite=True, names=False)

    def _kept(self, sink: FabricSink) -> FabricSink:
        self.made.append(sink)
        return sink


def _sources(opened: Opened, names: Sequence[str], versions: Sequence[Version]) -> list[FabricSource]:
    """Each with a pin of its own, which it lets go."""
    with opened.catalogue.writing():
        writes.pin(opened.catalogue, opened.blocks.session, [version.number for version in versions])
    return [FabricSource(opened, name, version) for name, version in zip(names, versions, strict=True)]
