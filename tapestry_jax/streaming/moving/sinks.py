"""Sinks of a stream: which output goes where, in what chunks, what is written at once, and that none is left open."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from combinators.errors import PlanError, message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.storage.chunked.metadata import default_chunks
from tapestry_jax.storage.protocols import Array, Sink, Stored
from tapestry_jax.streaming.moving.held import fetched
from tapestry_jax.streaming.parts import Split


def read_sinks(sinks: Any, graph: Graph) -> dict[int, Any]:
    """What makes the sink of an output, by its position.

    Raises:
      PlanError: for unknown names, one sink for several outputs, or what makes no sink.
    """
    if sinks is None:
        return {}
    names = [name for name, _ in graph.outputs]
    if not isinstance(sinks, Mapping):
        if len(names) != 1:
            remedy = f"Name them: sinks={{{names[0]!r}: tp.create(...)}}."
            got = f"got a {type(sinks).__name__}" if isinstance(sinks, tuple | list) else "got one sink"
            details = (f"they are {', '.join(names)}", f"{got}, {spelt(sinks)}")
            raise PlanError(message(f"`{graph.name}` has {len(names)} outputs", *details, remedy=remedy))
        sinks = {names[0]: sinks}
    known: Mapping[Any, Any] = sinks
    unknown = [name for name in known if name not in names]
    if unknown:
        remedy = "Name outputs of the program."
        raise PlanError(
            message(f"`{graph.name}` has no output {spelt(unknown[0])}", f"it has {', '.join(names)}", remedy=remedy)
        )
    for name, each in known.items():
        # A type has a function of this name too.
        if isinstance(each, TensorType) or not callable(getattr(each, "make", None)):
            remedy = "Pass what tp.create gives: tp.create('y.zarr')."
            raise PlanError(message(f"the sink of `{name}` creates nothing", f"got {spelt(each)}", remedy=remedy))
        if not callable(getattr(each, "beside", None)) or not hasattr(each, "has_chunks"):
            remedy = "Give it `has_chunks`, and `beside(shape, chunks, dtype)`, as storage.Creates says."
            headline = f"the sink of `{name}` does not say what memory writing takes"
            raise PlanError(message(headline, f"got {spelt(each)}", remedy=remedy))
    return {names.index(name): each for name, each in known.items()}


@contextmanager
def closed_on_errors(sinks: Mapping[int, Sequence[Sink]]) -> Generator[None]:
    """Close sinks where something fails: they can be made again, by the same process too."""
    try:
        yield
    except BaseException:
        for sink in (each for several in sinks.values() for each in several):
            sink.close()
        raise


def true_cells(value: Any, shape: Sequence[int]) -> Array:
    """A value on the devices as an array, without its padding."""
    return fetched(value)[(*map(slice, shape), ...)]


def write_whole(sink: Sink, array: Array) -> Stored:
    """Write all of a tensor, and finish it."""
    if array.size:
        sink.write(tuple((0, size) for size in array.shape), np.ascontiguousarray(array).reshape(array.shape)).result()
    return sink.finish()


def chunks_made(split: Split, slot: int) -> tuple[int, ...]:
    """The chunks in which what passes make is stored, where nobody has said any: boxes of turns are whole chunks.

    A box that covers a chunk in part costs reading and writing the whole of it.
    """
    kind = split.schedule.slots[slot].type
    chunks = list(default_chunks(kind.shape, np.dtype(kind.dtype)))
    for part in split.passes:
        for made in part.made:
            if made.value == slot:
                cuts = part.region.body.slots[made.slot].layout.cuts
                chunks = [
                    size if cut is None else _dividing(cut.block, size) for size, cut in zip(chunks, cuts, strict=True)
                ]
    return tuple(chunks)


def _dividing(block: int, most: int) -> int:
    """The largest divisor of a block that is at most `most`; `most` where that is far smaller."""
    if block <= most:
        return max(1, block)
    count = next((n for n in range(-(-block // most), block) if block % n == 0), block)
    return block // count if 4 * (block // count) >= most else most
