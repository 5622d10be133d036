"""What a run measures."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.measured.metrics import Meter

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


def test_metrics_print_a_line_for_each_stage() -> None:
    ran = job()
    ran.run()
    whole, *stages = str(ran.metrics).splitlines()
    assert re.fullmatch(r"4 turns in \S+ s(, [\d,]+ B of memory above its begin)?", whole)
    assert [line.split()[0] for line in stages] == ["read", "compute", "write"]
    assert f"{X.nbytes:,} B in 4 calls, busy" in stages[0]


def test_metrics_are_json_lines() -> None:
    ran = job()
    ran.run()
    lines = [json.loads(line) for line in ran.metrics.json_lines().splitlines()]
    assert [line.get("stage") for line in lines] == [None, "read", "compute", "write"]
    assert lines[1]["bytes"] == X.nbytes


def test_metrics_are_text_for_prometheus() -> None:
    ran = job()
    ran.run()
    metrics, found, told = ran.metrics, dict[str, float](), set[str]()
    text = metrics.prometheus()
    assert text.endswith("\n")
    for line in text.splitlines():
        if (comment := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line)) is not None:
            assert comment[1] == "HELP" or comment[3] in ("counter", "gauge")
            told.add(f"{comment[1]} {comment[2]}")
            continue
        sample = re.fullmatch(r'([a-z_]+)((?:\{stage="[a-z]+"\})?) (\S+)', line)
        assert sample is not None, line
        assert {f"HELP {sample[1]}", f"TYPE {sample[1]}"} <= told
        found[sample[1] + sample[2]] = float(sample[3])
    assert found["tapestry_stream_turns_total"] == 4
    assert found["tapestry_stream_run_seconds"] == metrics.seconds
    for stage in metrics.stages:
        assert found[f'tapestry_stream_bytes_total{{stage="{stage.name}"}}'] == stage.bytes
        assert found[f'tapestry_stream_busy_seconds_total{{stage="{stage.name}"}}'] == stage.busy
        assert found[f'tapestry_stream_waiting_seconds_total{{stage="{stage.name}"}}'] == stage.waiting
    has_memory = metrics.memory is not None
    assert found.get("tapestry_stream_memory_bytes") == metrics.memory
    assert len(found) == 2 + has_memory + 5 * 3


def test_metrics_before_a_run_are_refused() -> None:
    with pytest.raises(StreamError, match="nothing was measured yet"):
        _ = job().metrics


def test_depth_is_the_most_that_were_under_way_at_once() -> None:
    meter = Meter()
    for name in ("begin", "begin", "end", "begin", "end", "end"):
        getattr(meter, name)("read")
    read = meter.metrics().stage("read")
    assert (read.calls, read.depth) == (3, 2)
    assert meter.metrics().stage("write").throughput == 0
