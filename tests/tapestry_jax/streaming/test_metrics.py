"""What a run measures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.job import Job

X = np.ones((8, 4), np.float32)


def job() -> Job:
    return tp.stream(tp.Map(lambda a: a + 1, "row c -> row c"), {"row": tp.chunks(size=2)}, X)


def test_metrics_count_bytes_turns_and_depth() -> None:
    ran = job()
    ran.run()
    metrics = ran.metrics
    assert metrics.turns == 4
    assert metrics.stage("read").bytes == metrics.stage("write").bytes == X.nbytes
    assert metrics.stage("compute").calls == 4
    assert 1 <= metrics.stage("compute").depth <= 4
    assert metrics.seconds >= metrics.stage("read").busy


def test_metrics_are_json_lines() -> None:
    ran = job()
    ran.run()
    lines = [json.loads(line) for line in ran.metrics.json_lines().splitlines()]
    assert [line.get("stage") for line in lines] == [None, "read", "compute", "write"]
    assert lines[1]["bytes"] == X.nbytes


def test_metrics_before_a_run_are_refused() -> None:
    with pytest.raises(StreamError, match="nothing was measured yet"):
        _ = job().metrics
