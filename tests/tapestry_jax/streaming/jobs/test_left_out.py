"""`over=` left out: the one dimension in whose pieces the sources lie, or a refusal that names what could be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.moving.sinks import write_whole

agg = tp.aggregators
X = np.random.default_rng(0).normal(size=(103, 4)).astype(np.float32)
mean = tp.fold(agg.Mean(), "row c -> c")
product = tp.einsum("row c, c d -> row d")


def test_files_are_streamed_along_their_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    job = tp.stream(mean, sources=tp.open(tmp_path / "x.npy"))
    assert isinstance(job, Job) and job.dims == ("row",)
    assert np.allclose(job.run(), X.mean(0), atol=1e-6)
    # What is in memory beside a file is read whole.
    weights = np.ones((4, 3), np.float32)
    assert tp.stream(product, sources=(tp.open(tmp_path / "x.npy"), weights)).dims == ("row",)


def test_chunks_that_are_stored_say_the_dimension(tmp_path: Path) -> None:
    sink = tp.create(tmp_path / "x.zarr", chunks=(103, 2)).make(X.shape, np.float32, None, None)
    write_whole(sink, X).close()
    job = tp.stream(mean, sources=tp.open(tmp_path / "x.zarr"))
    assert job.dims == ("c",)
    assert np.allclose(job.run(), X.mean(0), atol=1e-6)


def test_sizes_are_left_to_the_memory_and_iterators_come_by_rows() -> None:
    limited = tp.stream(mean, sources=X, memory="4kB")
    assert limited.dims == ("row",) and limited.plan().fits and limited.plan().chunks[0][2] > 2
    graph = tp.trace(mean, tp.TensorType(X.shape))
    arriving = tp.stream(graph, sources=iter([X]))
    assert arriving.dims == ("row",) and np.allclose(arriving.run(), X.mean(0), atol=1e-6)
    assert tp.stream(mean, sources=X[:1]).dims == ("c",)


@pytest.mark.parametrize(
    ("program", "sources", "said"),
    [
        (product, (X, np.ones((4, 3), np.float32)), "expected one of row, c\n  Name one: over='row'"),
        (mean, X[:0], "no source with a named dimension has two cells"),
        (mean, X[:1, :1], "no source with a named dimension has two cells"),
        (tp.Map(lambda a: a[::-1], "[row] c -> [row] c"), X, "`row`, which nothing can cut"),
    ],
)
def test_what_is_not_clear_is_refused_with_what_could_be_meant(program: Any, sources: Any, said: str) -> None:
    with pytest.raises(tp.PlanError) as caught:
        tp.stream(program, sources=sources)
    assert said in str(caught.value)
