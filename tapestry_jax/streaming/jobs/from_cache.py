"""A job with `cache=`: values that jobs have made of the same sources are read, and those that it makes are kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from combinators.errors import FormatError, PlanError
from combinators.frozen import dataclass
from combinators.graphs.nodes import Ref
from tapestry_jax.storage.creating import Creation
from tapestry_jax.storage.files.pieces import rows_at_once
from tapestry_jax.storage.opening import Opened
from tapestry_jax.storage.protocols import Sink, Stored
from tapestry_jax.streaming.cached.cache import Cache, files
from tapestry_jax.streaming.cached.crossing import crossing
from tapestry_jax.streaming.cached.entries import (
    Found,
    check_writable,
    creation,
    find,
    keep_array,
    keep_tensor,
    remove_entry,
)
from tapestry_jax.streaming.cached.keys import computed, keys
from tapestry_jax.streaming.cluster.asked import check_engine, place_of_sink
from tapestry_jax.streaming.frozen import load, locked
from tapestry_jax.streaming.jobs.outputs import Outputs, whole
from tapestry_jax.streaming.jobs.smaller import Smaller, smaller
from tapestry_jax.streaming.kept.apart import REST
from tapestry_jax.streaming.kept.checkpoint import Checkpoint
from tapestry_jax.streaming.kept.origins import place_of
from tapestry_jax.streaming.moving.sinks import true_cells, write_whole

if TYPE_CHECKING:
    from tapestry_jax.streaming.jobs.job import Job


def run_cached(job: Job, cache: Cache) -> Any:
    """Run what is left of a job; where something in the cache turns out to be damaged, once more without it.

    Returns:
      The result in the structure of the program's.
    """
    with locked(cache.folder, shared=True), ExitStack() as opened:
        # What a kernel reads may have changed since the job was made, and parts of it be compiled: nothing is told.
        now = computed(job.planned, cache.values)
        known = keys({ref: each for ref, each in cache.values.items() if now.get(ref) == each}, job.sources)
        found = dict[Ref, Found]()
        for ref, key in known.items():
            if (value := find(cache.folder, key, job.planned.graph.type_of(ref))) is not None:
                found[ref] = value
                opened.callback(value.source.close)
        run = _Run(job, cache, known)
        try:
            leaves = run.leaves(found)
        except FormatError:
            damaged = [ref for ref, value in found.items() if not value.is_whole()]
            if not damaged:
                raise
            for ref in damaged:
                found.pop(ref).source.close()
                remove_entry(cache.folder, known[ref])
            leaves = run.leaves(found)
    return jax.tree.unflatten(job.planned.graph.out_tree, leaves)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run.

    Attributes:
      job: with its program.
      cache: what it keeps values in.
      known: their keys.
    """

    job: Job
    cache: Cache
    known: Mapping[Ref, str]

    def leaves(self, found: Mapping[Ref, Found]) -> list[Any]:
        """The outputs, from what was found and what is computed."""
        job, outputs = self.job, self.job.planned.graph.outputs
        found = begun_with(job, found)
        left = [number for number, (_, ref) in enumerate(outputs) if ref not in found]
        sinks = {left.index(number): each for number, each in job.sinks.items() if number in left}
        known = {ref: value.source for ref, value in found.items()}
        rest = smaller(job.planned, job.dims, job.sources, known, left, sinks) if left and found else None
        small = None if rest is None or rest.planned is None else self._planned(rest, sinks)
        if rest is None or (small is None and rest.planned is not None):
            if left:
                return self._turned(job, {ref: ref for ref in self.known}, {})
            made = dict[int, Any]()
        else:
            told = {"known": told_known(found)}
            leaves = self._small(rest, sinks) if small is None else self._turned(small, self._own(rest, small), told)
            made = dict(zip(left, leaves, strict=True))
        if not left:
            job.metered(lambda _: None)
        return [
            made[n] if n in made else given_again(found[ref].source, job.sinks.get(n))
            for n, (_, ref) in enumerate(outputs)
        ]

    def _small(self, rest: Smaller, sinks: Mapping[int, Any]) -> list[Any]:
        """The outputs of what is left, where nothing of it is streamed."""
        made = self.job.metered(lambda _: jax.jit(rest.part.graph)(*map(whole, rest.sources)))
        kinds = [rest.part.graph.type_of(ref) for _, ref in rest.part.graph.outputs]
        return [
            write_whole(_made(sinks[n], kinds[n], None), np.asarray(leaf)) if n in sinks else np.asarray(leaf)
            for n, leaf in enumerate(jax.tree.leaves(made))
        ]

    def _planned(self, rest: Smaller, sinks: Mapping[int, Any]) -> Job | None:
        """The job of what is left; None where it does not fit into the memory."""
        own = {Ref(node, 0): number for number, node in enumerate(rest.part.nodes)}
        values = {
            Ref(own[Ref(ref.node, 0)], ref.output): each
            for ref, each in self.cache.values.items()
            if Ref(ref.node, 0) in own
        }
        assert rest.planned is not None
        cache = replace(self.cache, values=values)
        job = replace(self.job, planned=rest.planned, dims=rest.dims, sources=rest.sources, sinks=sinks, cache=cache)
        if job.checkpoint is not None:
            job = replace(job, checkpoint=of_rest(job.checkpoint))
        if job.engine is not None:
            with suppress(PlanError):
                check_engine(job.split, rest.planned.mesh, rest.sources, sinks, job.checkpoint)
                return job
            return None
        return job if job.memory is None or job.plan().fits else None

    def _own(self, rest: Smaller, job: Job) -> dict[Ref, Ref]:
        return {ref: Ref(rest.part.nodes[ref.node], ref.output) for ref in crossing(job.split, job.planned.graph)}

    def _turned(self, job: Job, own: Mapping[Ref, Ref], told: Mapping[str, str]) -> list[Any]:
        """Run a job and keep what it makes.

        Args:
          job: all of it, or what is left.
          own: its values that may be kept, as the whole program has them.
          told: what else says who it is, where it is kept in a folder.
        """
        slots = {
            ref: slot for ref, slot in crossing(job.split, job.planned.graph).items() if own.get(ref) in self.known
        }
        if slots:
            check_writable(self.cache.folder)
        named = {slot: place_of_sink(each) for slot, each in files(job.split, job.sinks).items()}
        if job.checkpoint is not None:
            # In the folder of the job lie outputs without a sink; what is spilled there is removed. What goes to a
            # sink that is no file, as of a fabric, is nowhere that the cache could name.
            outputs = job.split.outputs
            unnamed = {*outputs} - {outputs[number] for number in job.sinks}
            files_of_it = {slot: place_of(job.split, slot, job.checkpoint.folder) for slot in unnamed}
            places = {s: Opened(str(path)) for s, path in files_of_it.items() if s in job.split.written} | named
            keeping = _Keeping(self, {slot: own[ref] for ref, slot in slots.items()}, job, places)
            return job.kept(job.resumable(told=told), job.checkpoint, keeping.done)
        also = {
            slot: creation(self.cache.folder, self.known[own[ref]])
            for ref, slot in slots.items()
            if slot in job.split.written and slot not in named
        }
        places = named | {slot: place_of_sink(each) for slot, each in also.items()}
        keeping = _Keeping(self, {slot: own[ref] for ref, slot in slots.items()}, job, places)
        return job.turned(Outputs(job.split, job.sinks, also), keeping.done)


def of_rest(checkpoint: Checkpoint) -> Checkpoint:
    """Where the job is kept that is left where some values are known."""
    return replace(checkpoint, folder=checkpoint.folder / REST)


def told_known(found: Mapping[Ref, Found]) -> str:
    """The values that a job reads from the cache, as a text."""
    return " ".join(f"{ref.node}.{ref.output}" for ref in sorted(found, key=lambda ref: (ref.node, ref.output)))


def begun_with(job: Job, found: Mapping[Ref, Found]) -> Mapping[Ref, Found]:
    """The values that a job with a folder goes on to read: those that it has begun with, whatever came meanwhile.

    Another choice would be another job, and what the folder holds be lost. Where every output is there nothing goes on;
    a job that has finished gives its own result again, which lies in its sinks.
    """
    state = None if job.checkpoint is None else load(job.checkpoint.folder)
    if state is not None and state.position.finished:
        return {}
    if job.checkpoint is None or all(ref in found for _, ref in job.planned.graph.outputs):
        return found
    if state is not None:
        return {}
    rest = of_rest(job.checkpoint).folder
    before = load(rest)
    if before is None:
        return found
    known = {told_known({ref: value}): (ref, value) for ref, value in found.items()}
    names = before.job.get("known", "").split()
    if names and {*names} <= {*known}:
        return dict(known[name] for name in names)
    with locked(rest):
        shutil.rmtree(rest)
    return {}


class _Keeping:
    """Keeps values as parts of a job are done."""

    def __init__(self, run: _Run, values: Mapping[int, Ref], job: Job, places: Mapping[int, Opened]) -> None:
        self._run, self._values, self._job, self._places = run, dict(values), job, places

    def done(self, values: Mapping[int, Any], stored: Mapping[int, Sequence[Stored]]) -> None:
        """Keep what there is now and was not before."""
        folder = self._run.cache.folder
        ready = [slot for slot in self._values if slot in values or slot in stored]
        is_same = self._unchanged([self._values[slot] for slot in ready])
        for slot in ready:
            ref = self._values.pop(slot)
            if not is_same.get(ref):
                continue
            key = self._run.known[ref]
            if slot in stored and slot in self._places:
                place = self._places[slot]
                if made := next((each for each in stored[slot] if _lies_at(each, place.path)), None):
                    keep_tensor(folder, key, made, place)
            elif slot in values:
                shape = self._job.split.schedule.slots[slot].type.shape
                keep_array(folder, key, true_cells(values[slot], shape))

    def _unchanged(self, refs: Sequence[Ref]) -> dict[Ref, bool]:
        """Whether values were computed by what their keys say, of what these say."""
        run = self._run
        values = {ref: run.cache.values[ref] for ref in refs}
        now = computed(run.job.planned, values) if values else {}
        known = keys({ref: each for ref, each in now.items() if each == values[ref]}, run.job.sources)
        return {ref: known.get(ref) == run.known[ref] for ref in refs}


def _lies_at(made: Stored, path: str) -> bool:
    """Whether a tensor lies in a file; of one with several in it the name of the tensor follows."""
    return made.where == path or made.where.startswith(f"{path}, `")


def given_again(source: Stored, sink: Any) -> Any:
    """An output that was found: an array, or written to its sink; a file that it lies in already stays."""
    if sink is None:
        return whole(source)
    if isinstance(sink, Creation) and sink.overwrite and _lies_at(source, str(sink.path)):
        return place_of_sink(sink).again()
    made = _made(sink, source, source.chunks)
    try:
        return _copied(source, made)
    except BaseException:
        made.close()
        raise


def _copied(source: Stored, sink: Sink) -> Stored:
    if not source.shape:
        return write_whole(sink, whole(source))
    step = rows_at_once(source)
    for start in range(0, source.shape[0], step):
        box = ((start, min(start + step, source.shape[0])), *((0, size) for size in source.shape[1:]))
        part = np.empty([stop - begin for begin, stop in box], source.dtype)
        if part.size:
            source.read(box, part).result()
            sink.write(box, part).result()
    return sink.finish()


def _made(sink: Any, kind: Any, chunks: Any) -> Sink:
    names = kind.names if kind.names is not None and any(kind.names) else None
    return sink.make(kind.shape, kind.dtype, names, chunks if sink.has_chunks else None)
