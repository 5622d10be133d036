"""Programs on tensors that need not fit into memory: `tp.stream` from a fabric into the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from tapestry_jax.fabric.catalogue import writes
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.streams.sinks import FabricCreation, FabricSink
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.fabric.tensors.records import Version
from tapestry_jax.plan import Plan
from tapestry_jax.storage.protocols import Names
from tapestry_jax.streaming.jobs.stream import stream


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
    over: Any,
    inputs: tuple[Sequence[str], Sequence[Version]],
    outputs: Sequence[str],
) -> Streamed:
    """Run a program over pieces of its inputs.

    Args:
      opened: the fabric.
      program: a graph, or a plan.
      over: as `tp.stream` takes it.
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
        job = stream(program, over, sources, mesh=mesh)
        known = [name for name, _ in job.planned.graph.outputs]
        pieces = [n for n, slot in enumerate(job.split.outputs) if slot in {*job.split.written}]
        sinks = {known[n]: _Watched(opened, outputs[n], made) for n in pieces}
        results = jax.tree.leaves(stream(job.planned, job.dims, sources, sinks).run())
        return Streamed(job.planned, job.dims, results)
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

    def make(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> FabricSink:
        creation = FabricCreation(self.opened, self.name, (), overwrite=True, names=False)
        self.made.append(creation.make(shape, dtype, names, chunks))
        return self.made[-1]


def _sources(opened: Opened, names: Sequence[str], versions: Sequence[Version]) -> list[FabricSource]:
    """Each with a pin of its own, which it lets go."""
    with opened.catalogue.writing():
        writes.pin(opened.catalogue, opened.blocks.session, [version.number for version in versions])
    return [FabricSource(opened, name, version) for name, version in zip(names, versions, strict=True)]
