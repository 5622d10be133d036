"""The page of a run: what it says, that names in it are text, and that it runs and loads nothing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.jobs.job import Job
from tapestry_jax.streaming.jobs.page import run_page
from tapestry_jax.streaming.measured.resident import resident
from tests.tapestry_jax.report.page.test_html import Elements

HOSTILE = "</h1><script>alert(1)</script>&\ud800\"'"
X = np.ones((11, 4), np.float32)


def job(**more: object) -> Job:
    mean = tp.fold(tp.aggregators.Mean(), "row c -> c", name="m")
    graph = tp.trace(mean, tp.TensorType(X.shape))
    return tp.stream(graph, {"row": tp.chunks(size=2)}, X, **more)


def test_a_page_says_what_the_run_has_measured_and_what_was_planned(tmp_path: Path) -> None:
    ran = job(memory="1MiB")
    ran.run()
    written = ran.report(tmp_path / "run.html")
    page = Elements(written.read_text(encoding="utf-8"))
    cells = [text for _, text in page.all("td")]
    rows = {cells[at]: cells[at + 1 : at + 7] for at in (0, 7, 14)}
    for stage in ran.metrics.stages:
        assert rows[stage.name][1] == str(stage.calls) and rows[stage.name][2] == f"{stage.busy:.3f} s"
        assert rows[stage.name][5] == str(stage.depth)
        assert len([0 for each, _ in page.all("rect") if each["class"] == stage.name]) == len(stage.spans)
    told = dict(zip(cells[21::3], cells[22::3], strict=True))
    assert told["limit"] == "1.0 MiB" and {"buffers", "carried", "planned", "measured"} <= set(told)
    assert "6 of 6 turns" in written.read_text(encoding="utf-8")
    assert "light-dark(" in page.all("style")[0][1]


def test_names_are_text_and_nothing_runs_or_is_loaded(tmp_path: Path) -> None:
    pages: list[Elements] = []
    for name in ("mean", HOSTILE):
        ran = job()
        ran.run()
        text = run_page(name, ("row", HOSTILE), 6, ran.metrics, ran.plan())
        (tmp_path / "run.html").write_text(text, encoding="utf-8")
        pages.append(Elements(text))
    tags = [[tag for tag, _ in page.elements if tag != "rect" and tag != "title"] for page in pages]
    assert tags[0] == tags[1]
    ((policy, _),) = [each for each in pages[1].all("meta") if "http-equiv" in each[0]]
    assert (
        policy["content"].startswith("default-src 'none'; style-src 'sha256-") and "script-src" not in policy["content"]
    )
    assert not pages[1].all("script") and not pages[1].all("link") and not pages[1].all("img")
    assert not any("style" in attributes for _, attributes in pages[1].elements)
    assert not re.search(r"url\(|https?:|@import", text)


def test_spans_are_within_the_run_and_add_up_to_what_was_busy() -> None:
    ran = job()
    ran.run()
    metrics = ran.metrics
    assert metrics == ran.metrics and metrics.memory == ran.metrics.memory
    for stage in metrics.stages:
        assert all(0 <= start <= stop <= metrics.seconds for start, stop in stage.spans)
        assert sum(stop - start for start, stop in stage.spans) == pytest.approx(stage.busy)
    assert resident() is None or metrics.memory is not None


def test_a_page_is_refused_before_a_run_and_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="nothing was measured yet"):
        job().report()
    ran = job()
    ran.run()
    with pytest.raises(tp.PlanError, match=r"job\.report: the page cannot be written(?s:.*)job\.report\('job\.html'\)"):
        ran.report(tmp_path / "nowhere" / "run.html")
