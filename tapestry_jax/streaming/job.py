"""`tp.stream`: a program over data that lie in files, chunk by chunk, by the schedule that loops on the device have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from combinators.arguments import read_flag
from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.lowering.devices import require_running
from tapestry_jax.plan import Plan
from tapestry_jax.planning.entries.items import chunks
from tapestry_jax.storage.creating import Creation, create
from tapestry_jax.storage.opening import Opened
from tapestry_jax.storage.protocols import Array, Sink, Stored
from tapestry_jax.streaming.asked import read_graph, read_names, read_plan, read_sources, require_outside
from tapestry_jax.streaming.cluster.asked import check_engine, client_of, place_of_sink, read_engine
from tapestry_jax.streaming.cluster.driver import OnWorkers, Work
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.fits.budget import Budget, budget_of, read_memory
from tapestry_jax.streaming.fits.fitting import check_fits, fitting
from tapestry_jax.streaming.kept.apart import check_apart
from tapestry_jax.streaming.kept.checkpoint import Checkpoint, Resumable, read_checkpoint, run_kept
from tapestry_jax.streaming.kept.extending import (
    Last,
    Reached,
    carried_as,
    check_same,
    given_rows,
    not_extended,
    traced_for,
    why_not,
)
from tapestry_jax.streaming.kept.origins import place_of
from tapestry_jax.streaming.metrics import Meter, Metrics
from tapestry_jax.streaming.moving.arriving import Arriving
from tapestry_jax.streaming.moving.held import Held
from tapestry_jax.streaming.moving.in_order import check_in_order
from tapestry_jax.streaming.moving.placing import places_of
from tapestry_jax.streaming.moving.writing import MOST
from tapestry_jax.streaming.position import Keeper, Stopped
from tapestry_jax.streaming.progress import Bar
from tapestry_jax.streaming.running import AHEAD, Runner
from tapestry_jax.streaming.sinks import chunks_made, closed_on_errors, read_sinks, true_cells
from tapestry_jax.streaming.split import Split, split
from tapestry_jax.streaming.turn import Programs


@dataclass(frozen=True, eq=False)
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
      meters: of its runs.
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
    meters: list[Meter] = field(default_factory=list[Meter], repr=False)
    reached: list[Reached] = field(default_factory=list[Reached], repr=False)

    @property
    def metrics(self) -> Metrics:
        """What the last run has measured; while it runs, what it has measured until now.

        Raises:
          StreamError: before the first run.
        """
        if not self.meters:
            raise StreamError(message("nothing was measured yet", remedy="Run the job first: job.run()."))
        return self.meters[-1].metrics()

    @cached_property
    def split(self) -> Split:
        """Passes over what is stored, and what stands between them."""
        return split(self.planned.schedule, self.dims)

    @cached_property
    def programs(self) -> Programs:
        """What runs on the devices, compiled once."""
        return Programs(self.planned.schedule, self.planned.mesh)

    @property
    def ahead(self) -> int:
        """Bytes of the ring of buffers; under a limit two turns have buffers, and no more."""
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
        places = places_of(self.planned.mesh)
        files = {self.split.outputs[number] for number in self.sinks}
        held = [slot for slot in self.split.written if slot not in files]
        return budget_of(self.split, self.programs, places, held, self._beside(), self.ahead, self.behind, self.memory)

    def _beside(self) -> dict[int, int]:
        """What reading and writing take beside the buffers: encoded chunks, by slot."""
        inputs = zip(self.split.schedule.inputs, self.sources, strict=True)
        found = {slot: int(getattr(source, "beside", 0)) for slot, source in inputs}
        for number, each in self.sinks.items():
            slot = self.split.outputs[number]
            if isinstance(each, Creation):
                kind = self.split.schedule.slots[slot].type
                own = each.beside(kind.shape, chunks_made(self.split, slot), np.dtype(kind.dtype))
                found[slot] = found.get(slot, 0) + own
        return found

    def run(self) -> Any:
        """Run it.

        Returns:
          The result in the structure of the program's: NumPy arrays, and what was stored for outputs that have sinks.

        Raises:
          FormatError: where a source cannot be read or a sink cannot be written, or no state in the folder can be read.
          StreamError: where another job holds the folder of this one, or the one in it is another one than this; where
            an iterator gives too few or too many rows, or fails, or a source is written while it is read; and inside
            of functions that JAX traces.
          KeyboardInterrupt: at Ctrl-C; with a checkpoint once the turn that is under way is done and kept.
        """
        require_outside()
        self.reached.clear()
        if self.checkpoint is None:
            if why_not(self.split, self.dims) is not None:
                return self.run_from(None, None)
            self.reached.append(self._reaching(None, 0))
            return self.reached[-1].result
        told = Resumable(
            self.planned,
            self.split,
            self.filled,
            self.sources,
            self.places(),
            self.opened,
            self._runner,
            self._metered,
            self.leaves,
        )
        out_tree = self.planned.graph.out_tree
        if self.engine is None:
            return jax.tree.unflatten(out_tree, run_kept(told, self.checkpoint))
        with client_of(self.engine) as client:
            told = replace(told, runner=lambda sinks: self._on_workers(sinks, client), engine="workers")
            return jax.tree.unflatten(out_tree, run_kept(told, self.checkpoint))

    def extend(self, new: Any) -> Any:
        """Go on with new rows from where the last run or extension has ended; old rows are not read.

        For programs of folds, whose operations do not depend on the number and the places of rows. `run` begins anew
        with the sources of the job.

        Args:
          new: rows for every input that has the streamed dimension, as `sources` of `tp.stream`: tensors that lie in
            files, or arrays. Of other inputs the job's own sources are read again.

        Returns:
          The result for all rows until now.

        Raises:
          StreamError: before the first run.
          PlanError: where the program needs old rows again, gives something for every row, or knows their number.

        Example:
          >>> import numpy as np
          >>> import tapestry_jax as tp
          >>> x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
          >>> mean = tp.fold(tp.aggregators.Mean(), "row c -> c")
          >>> job = tp.stream(mean, {"row": tp.chunks(size=2)}, x[:4])
          >>> job.run(), job.extend(x[4:])
          (array([3., 4.], dtype=float32), array([5., 6.], dtype=float32))
        """
        graph = self.planned.graph
        self._check_extended()
        dim, before = self.dims[0], self.reached[-1]
        given, places = given_rows(new, graph, self.sources, dim)
        sources = read_sources(given, None)
        rows = {sources[n].shape[graph.inputs[n].results[0].names.index(dim)] for n in places if sources[n].shape}
        added = rows.pop() if len(rows) == 1 else -1
        own, all_rows = self.split.passes[0], before.rows + added
        if added == 0:
            return before.result
        if added < 2:
            told = f"got {'different numbers of rows' if added < 0 else 'one row, which makes no turns'}"
            remedy = "Give every input the same number of rows, at least two: hold one back until there are more."
            raise PlanError(message("new rows come two or more at once", told, remedy=remedy))
        first = _rows_of(graph, dim)
        whole, fresh = (traced_for(self.program, graph, self.sources, dim, size) for size in (all_rows, added))
        check_same(graph, whole, dim, (first, all_rows))
        check_same(fresh, whole, dim, (added, all_rows))
        checked = read_sources(sources, fresh)
        entries = {**dict(self.planned.entries), dim: chunks(size=min(own.block, -(-added // 2)))}
        planned, dims = read_plan(fresh, entries, self.planned.mesh)
        planned.verify()
        job = replace(self, planned=planned, dims=dims, sources=checked)
        if (why := why_not(job.split, dims)) is not None or carried_as(job.split) != carried_as(self.split):
            raise not_extended(why or "for so few rows it carries another state")
        if self.memory is not None and not (budget := job.plan()).fits:
            remedy = "Give the job more memory."
            raise PlanError(message("new rows do not fit into the memory", *str(budget).splitlines(), remedy=remedy))
        self.reached.append(job._reaching(before.state, before.rows))
        del self.reached[:-1]
        return self.reached[-1].result

    def _check_extended(self) -> None:
        if self.checkpoint is not None:
            raise not_extended("the state in the folder of a job, checkpoint=, is that of its own rows")
        if (why := why_not(self.split, self.dims)) is not None:
            raise not_extended(why)
        if isinstance(self.program, Graph | Plan) or self.program is None:
            raise not_extended("it was given as a graph or a plan, whose sizes are fixed; give the program itself")
        if not self.reached:
            raise StreamError(message("there is nothing to go on from", remedy="Run the job first: job.run()."))

    def _reaching(self, older: Sequence[Array] | None, rows: int) -> Reached:
        last, sinks = Last(self.split), self.opened(self.filled)
        with closed_on_errors(sinks):
            result = self.result(*self._metered(replace(self._runner(sinks), older=older), None, last))
        assert last.state is not None
        return Reached(rows + _rows_of(self.planned.graph, self.dims[0]), last.state, result)

    def run_from(self, begin: Stopped | None, keeper: Keeper | None) -> Any:
        """Run it from where another run has stopped, handing snapshots to `keeper`."""
        sinks = self.opened(self.filled)
        with closed_on_errors(sinks):
            return self.result(*self._metered(self._runner(sinks), begin, keeper))

    def _runner(self, sinks: Mapping[int, Sequence[Sink]]) -> Runner:
        limits = self.ahead, self.behind
        return Runner(self.split, self.planned.mesh, self.sources, sinks, *limits, self.programs)

    def _on_workers(self, sinks: Mapping[int, Sequence[Sink]], client: Any) -> Runner:
        assert self.checkpoint is not None
        folder = self.checkpoint.folder
        places = {slot: Opened(str(place_of(self.split, slot, folder).absolute())) for slot in self.split.written}
        # An output that is an input is read where the input lies.
        for number, sink in self.sinks.items():
            if isinstance(sink, Creation) and self.split.outputs[number] in places:
                places[self.split.outputs[number]] = place_of_sink(sink)
        work = Work(client, self.planned, self.dims, folder, places)
        limits = self.ahead, self.behind
        return OnWorkers(self.split, self.planned.mesh, self.sources, sinks, *limits, self.programs, work=work)

    def _metered(
        self, runner: Runner, begin: Stopped | None, keeper: Keeper | None
    ) -> tuple[dict[int, Any], dict[int, Stored]]:
        meter = Meter()
        self.meters.append(meter)
        turns = sum(part.turns for part in self.split.passes)
        arriving = [each for each in self.sources if isinstance(each, Arriving)]
        try:
            for source in arriving:
                source.begin()
            with Bar(turns, meter) if self.progress else nullcontext():
                return runner.run(meter, begin, keeper)
        finally:
            for source in arriving:
                source.end()

    @property
    def filled(self) -> tuple[int, ...]:
        """The slots of all that goes to sinks: what passes make, and what is whole on the devices and has one."""
        return tuple(dict.fromkeys((*self.split.written, *(self.split.outputs[n] for n in self.sinks))))

    def places(self) -> dict[str, str]:
        """Where its sinks lie, by the names of outputs."""
        names = [name for name, _ in self.planned.graph.outputs]
        return {names[n]: str(each.where) for n, each in self.sinks.items()}

    def opened(self, slots: Iterable[int], folder: Path | None = None, again: bool = False) -> dict[int, list[Sink]]:
        """The sinks of values that passes make, by slot.

        Args:
          slots: the values.
          folder: of the job, where lies what has no sink; in memory where it has none.
          again: whether they were begun before.
        """
        found = dict[int, list[Sink]]()
        with closed_on_errors(found):
            for slot in slots:
                chosen = [
                    self.sinks[n] for n, output in enumerate(self.split.outputs) if output == slot and n in self.sinks
                ]
                if not chosen and folder is not None:
                    chosen = [create(place_of(self.split, slot, folder), overwrite=True)]
                kind, found[slot] = self.split.schedule.slots[slot].type, []
                names = kind.names if any(kind.names) else None
                for each in chosen:
                    made = each.again if again else each.make
                    # What goes on has the chunks that it was begun with.
                    is_new = isinstance(each, Creation) and each.has_chunks and not again
                    chunks = chunks_made(self.split, slot) if is_new else None
                    found[slot].append(made(kind.shape, kind.dtype, names, chunks))
                if not chosen:
                    found[slot].append(Held(kind))
        return found

    def result(self, values: Mapping[int, Any], stored: Mapping[int, Stored]) -> Any:
        """The outputs in the structure of the program's result."""
        return jax.tree.unflatten(self.split.schedule.graph.out_tree, self.leaves(values, stored))

    def leaves(self, values: Mapping[int, Any], stored: Mapping[int, Stored]) -> list[Any]:
        """The outputs: of values on the devices or the host the true cells, and what is stored."""
        schedule = self.split.schedule
        leaves: list[Any] = []
        for number, slot in enumerate(self.split.outputs):
            if number in self.sinks:
                leaves.append(stored[slot])
            elif slot in values:
                leaves.append(true_cells(values[slot], schedule.slots[slot].type.shape))
            else:
                leaves.append(whole(stored[slot]))
        return leaves


def _rows_of(graph: Graph, dim: str) -> int:
    """The cells of the streamed dimension."""
    kinds = (node.results[0] for node in graph.inputs)
    return next(kind.shape[kind.names.index(dim)] for kind in kinds if dim in kind.names)


def whole(source: Stored) -> Any:
    """All of what is stored, as an array."""
    array = np.empty(source.shape, source.dtype)
    source.read(tuple((0, size) for size in source.shape), array).result()
    return array


def stream(
    program: Any,
    over: Any = None,
    sources: Any = (),
    sinks: Any = None,
    *,
    memory: Any = None,
    mesh: Any = None,
    checkpoint: Any = None,
    save_every: Any = "30s",
    progress: Any = False,
    engine: Any = None,
) -> Job:
    """Run a program over data that need not fit into memory, chunk by chunk.

    The loops over the streamed dimension are those of `tp.plan` with `tp.chunks`, turned by the host: a turn reads its
    pieces of the sources, runs on the devices, and writes its pieces of the results. Folds and scans are carried on the
    devices. A program with several levels, such as `x - mean(x)`, takes several passes.

    Args:
      program: an arrow or a function as `tp.trace` takes it, a graph, or a plan that takes dimensions in chunks.
      over: entries as in `tp.plan`, of which those with `tp.chunks` are streamed: `{"row": tp.chunks(size=4096)}`. The
        name of a dimension, or several, leaves the size to the memory: the largest chunks that fit, aligned to those
        that are stored where that can be. For a plan the names of dimensions that it takes in chunks; by default all.
      sources: what the inputs are read from, in their order or by name: what `tp.open` gives, arrays, or for a graph
        iterators over arrays of rows, which are read once and in order (with `checkpoint`: into its folder, first).
      sinks: where outputs are written, by name or, for a program with one result, as they are: what `tp.create` gives.
        Outputs without one are returned as arrays. None lies in another, or in what is read.
      memory: bytes that the stream may need beside the program itself, such as `"512MiB"`; `job.plan()` shows for what.
      mesh: whose devices run the turns; by default the first device alone.
      checkpoint: a folder of the job's own, in which it keeps how far it is: a job that was killed goes on from there,
        with other chunks too, and one that has finished gives its result again.
      save_every: how often: a number of turns, or seconds as text, `"30s"`.
      progress: whether a run shows a bar, by tqdm: turns done, the rate of reading, and the time that is left.
      engine: a client of `dask.distributed` whose workers turn the chunks, where these are independent; `"dask"` for a
        cluster of this machine that ends with the job. It needs `checkpoint=`, in a folder that workers have as well.

    Returns:
      A job; `job.run()` runs it.

    Raises:
      PlanError: for what cannot be streamed, does not fit into the memory, and wrong sources or sinks.
      MeshError: for a mesh without devices.

    Example:
      >>> import numpy as np
      >>> import tapestry_jax as tp
      >>> x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
      >>> total = tp.fold(tp.aggregators.Sum(), "row c -> c")
      >>> tp.stream(total, {"row": tp.chunks(size=2)}, x).run()
      array([30., 36.], dtype=float32)
    """
    kept, shows = read_checkpoint(checkpoint, save_every), read_flag(progress, "progress= of tp.stream", PlanError)
    client = read_engine(engine)
    found, limit = read_sources(sources, program), read_memory(memory)
    graph = read_graph(program, found)
    checked = read_sources(found, graph)

    def job_over(entries: Any) -> Job:
        planned, dims = read_plan(graph, entries, mesh)
        require_running(planned.mesh)
        planned.verify()
        job = Job(planned, dims, checked, read_sinks(sinks, planned.graph), limit, kept, shows, program, client)
        _check_sinks(job)
        if client is not None:
            check_engine(job.split, planned.mesh, checked, job.sinks, kept)
        if kept is None:
            check_in_order(job.split, checked, places_of(planned.mesh))
        return job

    if not isinstance(graph, Plan) and over is not None and not isinstance(over, Mapping):
        return fitting(job_over, read_names(over), graph, checked, limit)
    job = job_over(over)
    check_fits(job_over, job, over)
    return job


def _check_sinks(job: Job) -> None:
    graph, slots = job.planned.graph, job.split.schedule.inputs
    given = [n for n in job.sinks if job.split.outputs[n] in slots]
    if given:
        name = job.planned.graph.outputs[given[0]][0]
        headline = f"the output `{name}` is an input as it is, and needs no sink"
        raise PlanError(message(headline, remedy="Leave it out of sinks=, and copy what it is read from."))
    named = {n: (graph.outputs[n][0], each) for n, each in job.sinks.items()}
    folder = None if job.checkpoint is None else job.checkpoint.folder
    check_apart(job.split, [node.name for node in graph.inputs], job.sources, named, folder)
