"""What `tp.stream` gives: a stream that can be planned, run, measured and gone on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import jax

from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.plan import Plan
from tapestry_jax.report.page.write import write_page
from tapestry_jax.storage.chunked.metadata import default_chunks
from tapestry_jax.storage.creating import Creation, create
from tapestry_jax.storage.opening import Opened
from tapestry_jax.storage.protocols import Array, Sink, Stored
from tapestry_jax.streaming.cached.cache import Cache
from tapestry_jax.streaming.cluster.asked import client_of, place_of_sink
from tapestry_jax.streaming.cluster.driver import OnWorkers, Work
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.fits.budget import Budget, Writes, budget_of
from tapestry_jax.streaming.jobs.asked import require_outside
from tapestry_jax.streaming.jobs.batches import extend_kept, first_batch
from tapestry_jax.streaming.jobs.extended import check_extended, extended, no_rows, nothing_counted
from tapestry_jax.streaming.jobs.from_cache import run_cached
from tapestry_jax.streaming.jobs.outputs import Outputs, store_of
from tapestry_jax.streaming.jobs.page import run_page
from tapestry_jax.streaming.kept.checkpoint import WORKERS, Checkpoint, Resumable, run_kept
from tapestry_jax.streaming.kept.extending import Last, Reached, rows_of, why_not
from tapestry_jax.streaming.kept.origins import file_for, place_of
from tapestry_jax.streaming.known import functions_of
from tapestry_jax.streaming.measured.metrics import Meter, Metrics
from tapestry_jax.streaming.measured.progress import Bar
from tapestry_jax.streaming.moving.arriving import Arriving
from tapestry_jax.streaming.moving.placing import places_of
from tapestry_jax.streaming.moving.sinks import closed_on_errors
from tapestry_jax.streaming.moving.spilling import Spill
from tapestry_jax.streaming.moving.writing import MOST
from tapestry_jax.streaming.parts import Split
from tapestry_jax.streaming.position import Keeper, Stopped
from tapestry_jax.streaming.running import AHEAD, Done, Runner
from tapestry_jax.streaming.split import split
from tapestry_jax.streaming.turn import Programs


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """A stream that can be run. Made by `tp.stream`.

    Attributes:
      planned: the plan; its loops over `dims` are turned by the host.
      dims: the streamed dimensions.
      sources: what the inputs are read from, in order.
      sinks: where outputs go, by position; the others are returned as arrays.
      memory: bytes that it may need; None where nothing was said.
      checkpoint: where and how often its state is kept; or None.
      progress: whether a run shows a bar.
      program: what was planned, which `extend` traces for new rows; a graph and a plan have their sizes.
      engine: a client of the cluster whose workers turn the chunks, or "dask"; None for this process.
      prefetch: bytes of the buffers into which turns are read ahead; None where nothing was said.
      meters: of its runs.
      cache: values of this job and of others; None where nothing was said.
      reached: where the last run or extension has ended, from which new rows can go on.
    """

    planned: Plan
    dims: tuple[str, ...]
    sources: tuple[Stored, ...]
    sinks: Mapping[int, Any]
    memory: int | None = None
    checkpoint: Checkpoint | None = None
    progress: bool = False
    program: Any = field(default=None, repr=False)
    engine: Any = None
    prefetch: int | None = None
    meters: list[Meter] = field(default_factory=list[Meter], repr=False)
    reached: list[Reached] = field(default_factory=list[Reached], repr=False)
    cache: Cache | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        kept = "" if self.checkpoint is None else f", kept in {str(self.checkpoint.folder)!r}"
        return f"Job({self.planned.graph!r}, over {', '.join(self.dims)}{kept})"

    def __reduce__(self) -> tuple[Any, ...]:
        remedy = "Hand on what tp.stream was given, and call it there."
        raise TypeError(message("a job cannot be pickled: it holds devices, and what was compiled", remedy=remedy))

    @property
    def metrics(self) -> Metrics:
        """What the last run has measured; while it runs, what it has measured until now.

        Raises:
          StreamError: before the first run.
        """
        if not self.meters:
            raise StreamError(message("nothing was measured yet", remedy="Run the job first: job.run()."))
        return self.meters[-1].metrics()

    def report(self, path: str | PathLike[str] | None = None) -> Path:
        """Write a page of the last run, or of the one under way: its stages, its time, its memory and what was planned.

        One file, without scripts, that loads nothing; light or dark as its reader has it.

        Args:
          path: of the file; None for a new temporary one.

        Returns:
          The file.

        Raises:
          StreamError: before the first run.
          PlanError: where it cannot be written.
        """
        metrics, turns = self.metrics, sum(part.turns for part in self.split.passes)
        page = run_page(self.planned.graph.name, self.dims, turns, metrics, self.plan())
        return write_page(path, page, "job.report")

    @cached_property
    def split(self) -> Split:
        """Passes over what is stored, and what stands between them."""
        return split(self.planned.schedule, self.dims, folds_leave=self.cache is not None)

    @cached_property
    def outputs(self) -> Outputs:
        """What it fills, and what its results are."""
        # What is kept in a folder goes on where it was, and would not find what somebody has pruned in the meantime.
        cache = None if self.checkpoint is not None else self.cache
        also = {} if cache is None else cache.also(self.split, self.planned, self.sinks)
        return Outputs(self.split, self.sinks, also)

    @cached_property
    def programs(self) -> Programs:
        """What runs on the devices, compiled once."""
        schedule, mesh = self.planned.schedule, self.planned.mesh
        return Programs(self.split, mesh, functions_of(self.program, schedule, mesh))

    @property
    def ahead(self) -> int:
        """Bytes of the ring of buffers; under a limit two turns have buffers, and no more, where nobody has said it."""
        if self.prefetch is not None:
            return self.prefetch
        return AHEAD if self.memory is None else 0

    @property
    def behind(self) -> int:
        """Bytes that are being written at once; under a limit a sixteenth of it."""
        return MOST if self.memory is None else min(MOST, self.memory // 16)

    def plan(self) -> Budget:
        """The memory that it needs, known before it starts: buffers, accumulators, temporaries, results.

        Returns:
          A table that `print` shows; its `total` is a bound for what a run adds to the process.
        """
        places, held = places_of(self.planned.mesh), self.outputs.held
        # In the folder of a job lies what one pass leaves to another; what is returned is read from there.
        held = held if self.checkpoint is None else [slot for slot in held if slot in {*self.split.outputs}]
        read = dict(zip(self.split.schedule.inputs, self.sources, strict=True))
        limits = self.ahead, self.behind, self.memory
        return budget_of(self.split, self.programs, places, held, read, self._written(), *limits)

    def _written(self) -> dict[int, list[Writes]]:
        """Where what passes make goes, and what arrives goes first, by slot; what that takes beside the buffers."""
        folder = None if self.checkpoint is None else self.checkpoint.folder
        found = self.outputs.stores(folder)
        for slot, source in zip(self.split.schedule.inputs, self.sources, strict=True):
            if folder is not None and isinstance(source, Arriving):
                place = create(folder / file_for("rows", source.dtype))
                made = source.shape, default_chunks(source.shape, source.dtype), source.dtype
                found.setdefault(slot, []).append(partial(store_of, place, *made))
        return found

    def run(self) -> Any:
        """Run it.

        Returns:
          The result in the structure of the program's: NumPy arrays, and what was stored for outputs that have sinks.

        Raises:
          FormatError: where a source cannot be read or a sink cannot be written, no state in the folder can be read, or
            what a job that was stopped has written until then is damaged.
          StreamError: where another job holds the folder of this one, or the one in it is another one than this; where
            an iterator gives too few or too many rows, or fails, or a source is written while it is read; and inside
            of functions that JAX traces.
          KeyboardInterrupt: at Ctrl-C; with a checkpoint once the turn that is under way is done and kept.
        """
        require_outside()
        self.reached.clear()
        if self.cache is not None:
            return run_cached(self, self.cache)
        if self.checkpoint is None:
            if why_not(self.split, self.dims) is not None:
                return self.run_from(None, None)
            self.reached.append(self._reaching(None, 0))
            return self.reached[-1].result
        leaves = self.kept(self.resumable(goes_on=first_batch(self)), self.checkpoint)
        return jax.tree.unflatten(self.planned.graph.out_tree, leaves)

    def kept(
        self,
        told: Resumable,
        checkpoint: Checkpoint,
        done: Done | None = None,
        older: Sequence[Array] | None = None,
    ) -> list[Any]:
        """Run it in a folder, in this process or on workers.

        Args:
          told: the job as it is kept.
          checkpoint: where, and how often.
          done: told behind every part what there is.
          older: what its pass carries from rows before its own.

        Returns:
          The outputs, in order.
        """

        def by(runner: Callable[..., Runner]) -> list[Any]:
            return run_kept(
                replace(told, runner=lambda *given: replace(runner(*given), done=done, older=older)), checkpoint
            )

        if self.engine is None:
            return by(self._runner)
        with client_of(self.engine) as client:
            return by(partial(self._on_workers, client, checkpoint.folder))

    def resumable(self, told: Mapping[str, str] | None = None, goes_on: Mapping[str, Array] | None = None) -> Resumable:
        """The job as it is kept.

        Args:
          told: what says who it is, beside what it computes.
          goes_on: what others that go on from its end are told.
        """
        out = self.outputs
        return Resumable(
            self.planned,
            self.split,
            out.filled,
            self.sources,
            out.places(),
            out.opened,
            self._runner,
            self._metered,
            out.leaves,
            WORKERS if self.engine is not None else "",
            told or {},
            goes_on=goes_on,
        )

    def extend(self, new: Any, *, mode: str = "cumulative", batch: str | None = None) -> Any:
        """Go on with new rows from where the last run or extension has ended; old rows are not read.

        For programs of folds, whose operations do not depend on the number and the places of rows. `run` begins anew
        with the sources of the job.

        With `checkpoint=` the states are in the folder, where a job of another process, for other rows, goes on from
        them. Every batch is counted there once: rows that are known by their place are not read again, and the result
        is that of all until now. Killed, it goes on where it was when it is given the same rows.

        Args:
          new: rows for every input that has the streamed dimension, as `sources` of `tp.stream`: tensors that lie in
            files, or arrays. Of other inputs the job's own sources are read again.
          mode: `"cumulative"` goes on from all rows until now; `"reset"` forgets them, and begins with the new rows:
            for batches of which each has a result of its own. The next extension goes on from there.
          batch: with `checkpoint=` what these rows are called; needed where they lie in memory, or in a place from
            which others were counted.

        Returns:
          The result for all rows until now, or since the last reset.

        Raises:
          StreamError: before the first run; where another job holds the folder, or the one in it is another program.
          PlanError: where the program needs old rows again, gives something for every row, or knows their number; and
            for rows of which it cannot be told whether they were counted.

        Example:
          >>> import numpy as np
          >>> import tapestry_jax as tp
          >>> x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
          >>> mean = tp.fold(tp.aggregators.Mean(), "row c -> c")
          >>> job = tp.stream(mean, {"row": tp.chunks(size=2)}, x[:4])
          >>> job.run(), job.extend(x[4:])
          (array([3., 4.], dtype=float32), array([5., 6.], dtype=float32))
        """
        if not isinstance(mode, str) or mode not in ("cumulative", "reset"):  # pyright: ignore[reportUnnecessaryIsInstance]
            remedy = 'Say "reset" where old rows are to be forgotten.'
            told = (f"got mode={spelt(mode, 40)}", 'expected "cumulative" or "reset"')
            raise PlanError(message("new rows go on from older ones, or begin anew", *told, remedy=remedy))
        if self.checkpoint is not None:
            return extend_kept(self, self.checkpoint, new, batch, begins=mode == "reset")
        if batch is not None:
            remedy = "Leave batch= out, or name a folder: tp.stream(..., checkpoint=...)."
            raise PlanError(message("without checkpoint= nothing remembers which rows were counted", remedy=remedy))
        check_extended(self)
        if not self.reached and mode != "reset":
            raise nothing_counted("job.run()")
        before = Reached(0, None, None) if mode == "reset" else self.reached[-1]
        job = extended(self, before.rows, new)
        if job is None:
            return before.result if mode != "reset" else no_rows()
        self.reached.append(job._reaching(before.state, before.rows))
        del self.reached[:-1]
        return self.reached[-1].result

    def _reaching(self, older: Sequence[Array] | None, rows: int) -> Reached:
        last, sinks = Last(), self.outputs.opened(self.outputs.filled)
        with closed_on_errors(sinks):
            runner = self._runner(sinks, self.outputs.spill)
            made = self._metered(replace(runner, older=older, ended=last), None, None)
            result = self.outputs.result(*made)
        return Reached(rows + rows_of(self.planned.graph, self.dims[0]), last.state, result)

    def run_from(self, begin: Stopped | None, keeper: Keeper | None) -> Any:
        """Run it from where another run has stopped, handing snapshots to `keeper`."""
        sinks = self.outputs.opened(self.outputs.filled)
        with closed_on_errors(sinks):
            return self.outputs.result(*self._metered(self._runner(sinks, self.outputs.spill), begin, keeper))

    def turned(self, outputs: Outputs, done: Done) -> list[Any]:
        """Run it, with other outputs than its own, and tell behind every part what there is.

        Returns:
          The outputs, in order.
        """
        sinks = outputs.opened(outputs.filled)
        with closed_on_errors(sinks):
            runner = replace(self._runner(sinks, outputs.spill), done=done)
            return outputs.leaves(*self._metered(runner, None, None))

    def metered(self, call: Callable[[Meter], Any]) -> Any:
        """Do something that is no stream as a run of this job."""
        meter = Meter()
        self.meters.append(meter)
        try:
            return call(meter)
        finally:
            meter.ended()

    def _runner(self, sinks: dict[int, list[Sink]], spill: Spill) -> Runner:
        limits = self.ahead, self.behind
        return Runner(self.split, self.planned.mesh, self.sources, sinks, spill, *limits, self.programs)

    def _on_workers(self, client: Any, folder: Path, sinks: dict[int, list[Sink]], spill: Spill) -> Runner:
        places = {slot: Opened(str(place_of(self.split, slot, folder).absolute())) for slot in self.split.written}
        # An output that is an input is read where the input lies.
        for number, sink in self.sinks.items():
            if isinstance(sink, Creation) and self.split.outputs[number] in places:
                places[self.split.outputs[number]] = place_of_sink(sink)
        work = Work(client, self.planned, self.dims, folder, places)
        limits = self.ahead, self.behind
        return OnWorkers(self.split, self.planned.mesh, self.sources, sinks, spill, *limits, self.programs, work=work)

    def _metered(
        self, runner: Runner, begin: Stopped | None, keeper: Keeper | None
    ) -> tuple[dict[int, Any], dict[int, Sequence[Stored]]]:
        meter = Meter(None if self.memory is None else self.plan().held)
        self.meters.append(meter)
        turns = sum(part.turns for part in self.split.passes)
        arriving = [each for each in self.sources if isinstance(each, Arriving)]
        try:
            for source in arriving:
                source.begin()
            with Bar(turns, meter) if self.progress else nullcontext():
                return runner.run(meter, begin, keeper)
        finally:
            meter.ended()
            for source in arriving:
                source.end()
