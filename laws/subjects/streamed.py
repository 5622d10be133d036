"""A plan whose loops over chunks the host turns: over arrays, and on the workers of a cluster, over files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

from combinators.errors import TapestryError, first_line
from combinators.index_space.tensor_type import TensorType


@final
class Streamed:
    """A plan as a stream.

    Args:
      plan: of `tp.plan`, that takes a dimension in chunks.
      engine: whose workers turn the chunks, as `tp.stream` takes it; None for none.
      name: what messages call the plan.
    """

    def __init__(self, plan: Any, engine: Any, name: str) -> None:
        self.plan, self.engine, self.name = plan, engine, name

    def why_not(self) -> str | None:
        """Why there is nothing to stream; None where there is."""
        # Laws of other pieces do without plans and streams.
        from tapestry_jax.plan import Plan

        if not isinstance(self.plan, Plan):
            return f"`{self.name}` is no tp.Plan"
        if not self._chunked:
            return f"`{self.name}` takes no dimension in chunks"
        try:
            has_passes = bool(self._job.split.passes)
        except TapestryError as error:
            return f"`{self.name}` is not streamed: {first_line(error)}"
        return None if has_passes else f"`{self.name}` takes all cells in one chunk"

    def why_not_on_workers(self) -> str | None:
        """Why workers cannot turn it; None where they can."""
        if self.engine is None:
            return "no engine= was given"
        if (why := self.why_not()) is not None:
            return why
        shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in self._buffers]
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._on_workers(list(map(_zeros, shapes)), Path(folder))
            except TapestryError as error:
                return f"`{self.name}` is not turned by workers: {first_line(error)}"
        return None

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The results, with the host turning the loops of the plan on its own mesh."""
        for buffer, leaf in zip(self._buffers, leaves, strict=True):
            np.copyto(buffer, np.asarray(leaf))
        return jax.tree.leaves(self._job.run())

    def run_on_workers(self, leaves: Sequence[Any]) -> list[Any]:
        """The results, with workers turning the chunks: each on one device, the sources in files."""
        with tempfile.TemporaryDirectory() as folder:
            return jax.tree.leaves(self._on_workers(leaves, Path(folder)).run())

    @cached_property
    def _buffers(self) -> list[Any]:
        """What the job reads; every run fills them, so that its programs are compiled once."""
        return [_zeros(node.results[0]) for node in self.plan.graph.inputs]

    @cached_property
    def _job(self) -> Any:
        # As above.
        from tapestry_jax.streaming.jobs.stream import stream

        return stream(self.plan, None, list(self._buffers))

    @cached_property
    def _chunked(self) -> dict[str, Any]:
        # As above.
        from tapestry_jax.planning.entries.items import Chunks

        pairs = ((dim, item) for dim, items in self.plan.entries for item in items)
        return {dim: item for dim, item in pairs if isinstance(item, Chunks)}

    def _on_workers(self, leaves: Sequence[Any], folder: Path) -> Any:
        # As above.
        from tapestry_jax.by_hand import plan
        from tapestry_jax.mesh import mesh
        from tapestry_jax.storage.creating import create
        from tapestry_jax.storage.opening import open as opened
        from tapestry_jax.streaming.jobs.stream import stream
        from tapestry_jax.streaming.moving.sinks import write_whole

        sources: list[Any] = []
        for number, leaf in enumerate(leaves):
            array = np.asarray(leaf)
            place = folder / f"{number}.zarr"
            write_whole(create(place).make(array.shape, array.dtype, None, None), array).close()
            # A worker opens what was opened by its path.
            sources.append(opened(place))
        given = self.plan
        alone = plan(given.graph, mesh(jax.devices()[:1], device=1), self._chunked, accumulate=dict(given.accumulate))
        return stream(alone, None, sources, checkpoint=folder / "job", engine=self.engine)


def _zeros(kind: TensorType | jax.ShapeDtypeStruct) -> Any:
    return np.zeros(kind.shape, kind.dtype)
