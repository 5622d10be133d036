"""The cache of a job: where it lies, and which values of the job it may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from combinators.frozen import dataclass
from combinators.graphs.nodes import Ref
from tapestry_jax.plan import Plan
from tapestry_jax.storage.creating import Creation, create
from tapestry_jax.streaming.cached.crossing import crossing
from tapestry_jax.streaming.cached.keys import Computed, computed
from tapestry_jax.streaming.parts import Split
from tapestry_jax.streaming.split import split


@dataclass(frozen=True, eq=False)
class Cache:
    """Where a job keeps its values, and what computed them when it was made.

    Attributes:
      folder: of the cache, absolute.
      values: that it may keep or find.
    """

    folder: Path
    values: Mapping[Ref, Computed]

    def also(self, split: Split, plan: Plan, sinks: Mapping[int, Any]) -> dict[int, Creation]:
        """What it takes to keep what passes make and no file of the user's has, by slot; to plan memory by."""
        named, values = files(split, sinks), crossing(split, plan.graph)
        slots = {slot for ref, slot in values.items() if ref in self.values and slot in split.written}
        return {slot: create(self.folder / "value.zarr") for slot in slots - {*named}}


def cache_of(plan: Plan, dims: Sequence[str], folder: Path, known: dict[int, str]) -> Cache:
    """The cache of a job; asked before anything of it is compiled.

    Args:
      plan: of the job.
      dims: the streamed dimensions.
      folder: of the cache.
      known: what nodes of the graph compute, which other plans of it have asked for.
    """
    values = crossing(split(plan.schedule, dims, folds_leave=True), plan.graph)
    return Cache(folder, computed(plan, values, known))


def files(split: Split, sinks: Mapping[int, Any]) -> dict[int, Creation]:
    """The files of the user's into which passes write, by slot."""
    given = [(split.outputs[n], each) for n, each in sinks.items() if isinstance(each, Creation)]
    return {slot: each for slot, each in given if slot in split.written}
