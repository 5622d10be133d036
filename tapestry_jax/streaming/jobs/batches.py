"""`job.extend(new)` of a job with `checkpoint=`: states in its folder, from which other processes go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from combinators.errors import PlanError, message, spelt
from tapestry_jax.storage.creating import Creation
from tapestry_jax.storage.files.joined import Joined
from tapestry_jax.storage.protocols import Array, Stored
from tapestry_jax.streaming.cached.keys import place_told
from tapestry_jax.streaming.cluster.asked import place_of_sink
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import Frozen, Position, check_unchanged, locked
from tapestry_jax.streaming.jobs.asked import read_sources
from tapestry_jax.streaming.jobs.extended import check_extended, extended, no_rows, nothing_counted
from tapestry_jax.streaming.kept.apart import check_alone
from tapestry_jax.streaming.kept.batches import (
    Batch,
    Counted,
    begin_batch,
    end_batch,
    goes_on,
    is_begun,
    newest,
    told_of,
)
from tapestry_jax.streaming.kept.checkpoint import WORKERS, Checkpoint, check_results
from tapestry_jax.streaming.kept.extending import given_rows, not_extended, rows_of, traced_for
from tapestry_jax.streaming.kept.origins import outline
from tapestry_jax.streaming.kept.thaw import older_state

if TYPE_CHECKING:
    from tapestry_jax.streaming.jobs.job import Job


def first_batch(job: Job) -> dict[str, Array] | None:
    """What the end of a job's own run is kept with; None where new rows cannot go on from there."""
    try:
        check_extended(job)
    except PlanError:
        return None
    rows, read = rows_of(job.planned.graph, job.dims[0]), _with_rows(job, job.sources)
    own = [Batch.of("run", _content(read), "the job's own rows")]
    return goes_on(rows, rows, None, _batches(read, None) or own)


def extend_kept(job: Job, checkpoint: Checkpoint, new: Any, name: Any, *, begins: bool) -> Any:
    """Count new rows, once, behind those that are counted in the folder of the job.

    Args:
      job: the program.
      checkpoint: where the states are.
      new: rows for every input that has rows.
      name: what they are called; None where their place says it.
      begins: whether the rows until now are forgotten.

    Returns:
      The result for all rows until now.
    """
    check_extended(job, leaves=False)
    check_alone(checkpoint.folder, [*job.sources, *(_given(job, new) if begins else ())])
    with locked(checkpoint.folder):
        before = newest(checkpoint.folder)
        if before is None and not begins:
            raise nothing_counted('job.run(), or begin with these rows: mode="reset"')
        older, read = None if begins else before, _given(job, new)
        batches = _batches(read, _checked_name(name))
        _check_once(batches)
        if before is not None and batches and _is_counted(before, batches, begins=begins):
            _check_program(job, before, checkpoint)
            return _again(job, before)
        grown = extended(job, 0 if older is None else older.rows, new)
        if grown is None:
            return no_rows() if older is None else _again(job, older)
        if not batches:
            raise _nameless()
        if before is not None:
            _check_program(grown, before, checkpoint)
        return _counted(job, grown, checkpoint, older, batches, before)


def _counted(
    job: Job,
    grown: Job,
    checkpoint: Checkpoint,
    older: Counted | None,
    batches: Sequence[Batch],
    newest_one: Counted | None,
) -> Any:
    """Run the job for new rows, behind the older ones, if any."""
    folder, dim = checkpoint.folder, job.dims[0]
    added = rows_of(grown.planned.graph, dim)
    number = 1 if newest_one is None else newest_one.number + 1
    # The program is told apart by its key for as many rows as the folder was begun with.
    first, program = (added, grown.planned.graph.key) if newest_one is None else (newest_one.first, newest_one.program)
    end = goes_on(first, added + (older.rows if older else 0), None if older is None else older.batches, batches)
    told = told_of(number, program, end["batches"])
    place = begin_batch(folder, number, told, WORKERS if job.engine is not None else "")
    state = None if older is None else older_state(grown.split, grown.programs, older.frozen.arrays, older.folder)
    leaves = grown.kept(grown.resumable(told, end), replace(checkpoint, folder=place), older=state)
    end_batch(folder, number)
    return jax.tree.unflatten(job.planned.graph.out_tree, leaves)


def _check_program(job: Job, counted: Counted, checkpoint: Checkpoint) -> None:
    """Refuse another program, and other values of inputs without rows."""
    plan, dim = job.planned, job.dims[0]
    graph = traced_for(job.program, plan.graph, job.sources, dim, counted.first)
    now = {"graph": graph.key, "accumulate": str(plan.accumulate)}
    now |= {"passes": outline(job.split)} if job.split.passes else {}
    was = {name: counted.frozen.job.get(name, "") for name in now} | {"graph": counted.program}
    inputs = [(node, dim in node.results[0].names) for node in plan.graph.inputs]
    pairs = zip(inputs, job.sources, strict=True)
    others = {node.name: source.fingerprint() for (node, has_rows), source in pairs if not has_rows}
    known = {name: counted.frozen.sources.get(name, "") for name in others}
    frozen = (Frozen(job_told, told, {}, Position(), {}) for job_told, told in ((was, known), (now, others)))
    check_unchanged(checkpoint.folder, *frozen)


def _with_rows(job: Job, sources: Sequence[Stored]) -> list[Stored]:
    pairs = zip(job.planned.graph.inputs, sources, strict=True)
    return [source for node, source in pairs if job.dims[0] in node.results[0].names]


def _given(job: Job, new: Any) -> list[Stored]:
    given, places = given_rows(new, job.planned.graph, job.sources, job.dims[0])
    sources = read_sources(given, None)
    return [sources[place] for place in places] if len(sources) == len(given) else []


def _checked_name(name: Any) -> str | None:
    if name is None or (isinstance(name, str) and name):
        return name
    remedy = 'Write batch="2026-11-23".'
    raise PlanError(message("batch= of job.extend is a name", f"got {spelt(name)}", remedy=remedy))


def _nameless() -> PlanError:
    told = "a job that is killed is given its rows again, and nothing would tell that they were counted"
    remedy = 'Name them: job.extend(new, batch="2026-11-23").'
    return PlanError(message("these rows have no place by which they are known again", told, remedy=remedy))


def _batches(sources: Sequence[Stored], name: str | None) -> list[Batch]:
    """The batches that sources hold: of files that are joined each is one. None where nothing says which they are."""
    if name is not None:
        return [Batch.of(f"batch {name}", _content(sources), f"the batch {name!r}")]
    files = [[*_files(source)] for source in sources]
    counts = {len(own) for source, own in zip(sources, files, strict=True) if isinstance(source, Joined)}
    if len(counts) > 1:
        # Files of one input would have no partners of the other.
        return []
    number = counts.pop() if counts else 1
    pairs = zip(sources, files, strict=True)
    columns = [own if isinstance(source, Joined) else own * number for source, own in pairs]
    found = [_batch(own) for own in zip(*columns, strict=True)]
    return [batch for batch in found if batch is not None] if None not in found else []


def _files(source: Stored) -> Iterator[Stored]:
    """What is joined in a source, also where that was joined before."""
    if not isinstance(source, Joined):
        yield source
        return
    for part in source.parts:
        yield from _files(part)


def _check_once(batches: Sequence[Batch]) -> None:
    again = [batch.shown for n, batch in enumerate(batches) if batch.place in {each.place for each in batches[:n]}]
    if again:
        told = [f"{shown} is there again" for shown in dict.fromkeys(again)]
        remedy = "Give each of them once, or give all of them a name: batch=."
        raise PlanError(message("some of these rows are given twice", *told, remedy=remedy))


def _batch(sources: Sequence[Stored]) -> Batch | None:
    places = [place_told(source) for source in sources]
    if not places or any(place is None for place in places):
        return None
    shown = ", ".join(str(source.where) for source in sources)
    return Batch.of(f"places {places}", _content(sources), shown)


def _content(sources: Sequence[Stored]) -> str:
    return repr([source.fingerprint() for source in sources])


def _is_counted(counted: Counted, batches: Sequence[Batch], *, begins: bool) -> bool:
    """Whether the result is there already.

    Raises:
      PlanError: where some of the rows are counted and others are not.
    """
    if begins:
        # What was counted is forgotten, and may come again; unless these rows are all that was counted.
        return counted.are(batches)
    known = [batch for batch in batches if counted.has(batch)]
    if known and len(known) < len(batches):
        told = [f"{batch.shown} is counted" for batch in known]
        remedy = "Give those that are not, or give all of them a name: batch=."
        raise PlanError(message("some of these rows are counted already", *told, remedy=remedy))
    return bool(known)


def _again(job: Job, counted: Counted) -> Any:
    """The result of all rows until now, as it was kept."""
    graph, arrays = job.planned.graph, counted.frozen.arrays
    if (places := job.outputs.places()) != counted.frozen.sinks:
        told = [f"{name}: {where}" for name, where in counted.frozen.sinks.items()] or ["it was returned as arrays"]
        remedy = "Give the sinks that the rows were counted with."
        headline = f"the result of the rows that are counted in {counted.folder} lies elsewhere"
        raise StreamError(message(headline, *told, f"got {places}", remedy=remedy))
    leaves = list[Any]()
    for number in range(len(graph.outputs)):
        sink = job.sinks.get(number)
        if sink is None:
            leaves.append(arrays[f"output/{number}"])
        elif isinstance(sink, Creation):
            leaves.append(place_of_sink(sink).again())
        else:
            raise not_extended(f"the result in {spelt(sink)} cannot be opened again")
    try:
        check_results(leaves, arrays, counted.folder)
    except StreamError:
        if not is_begun(counted):
            raise
        headline = f"the result of the rows that are counted in {counted.folder} was written over"
        told = "others were being counted behind them when the job was stopped"
        raise StreamError(message(headline, told, remedy="Give those rows again first, then these.")) from None
    return jax.tree.unflatten(graph.out_tree, leaves)
