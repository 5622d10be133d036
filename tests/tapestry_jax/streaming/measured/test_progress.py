"""The bar of a run."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError

X = np.ones((8, 4), np.float32)
PROGRAM = tp.Map(lambda a: a + 1, "row c -> row c")


def test_progress_shows_every_turn(capsys: Any) -> None:
    tp.stream(PROGRAM, {"row": tp.chunks(size=2)}, X, progress=True).run()
    shown = capsys.readouterr().err
    assert "4/4" in shown
    assert "MB/s read" in shown


def test_progress_is_silent_by_default(capsys: Any) -> None:
    tp.stream(PROGRAM, {"row": tp.chunks(size=2)}, X).run()
    assert capsys.readouterr().err == ""


def test_progress_without_tqdm_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    job = tp.stream(PROGRAM, {"row": tp.chunks(size=2)}, X, progress=True)
    with pytest.raises(StreamError, match=r"needs the package tqdm(?s:.*)tapestry-jax\[stream\]"):
        job.run()


def test_progress_is_a_flag() -> None:
    with pytest.raises(tp.PlanError, match=r"progress= of tp\.stream"):
        tp.stream(PROGRAM, {"row": tp.chunks(size=2)}, X, progress="yes")
