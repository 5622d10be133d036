"""What the compilers said as tables, and what becomes of a program that they did not finish. Asking them: tests/aot."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.aot_run import answers
from benchmarks.aot_table import tables

SAID = {"seconds": 1.0, "title": "a row", "cycles": 900, "temporaries": 8, "sent": 64, "hidden": 0.5, "lookups": 3}


def _answer(program: str, **others: Any) -> dict[str, Any]:
    return {"machine": "v5e:2x4", "row": "ring", "program": program, **others}


def test_ours_stands_beside_its_peers_and_what_is_missing_is_named() -> None:
    shown = tables(
        [
            _answer("ours", **SAID),
            _answer("automatic", **{**SAID, "cycles": 1000, "lookups": 0}),
            _answer("by hand", why="more than 60 s of processor time"),
        ],
        60,
    )
    assert "| a row | 900 (+3) | 1,000 | 0.900 |  |  | 8 | 8 |  | 64 | 64 |  | 50% |" in shown
    assert "- ring, by hand: more than 60 s of processor time." in shown
    assert "at most 60 s of processor time" in shown


def test_a_program_over_its_limit_is_told_and_the_next_one_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        labels = command[command.index("60") + 1 :]
        asked.append(labels)
        finished = [label for label in labels if label != "automatic"] if labels[0] != "automatic" else []
        finished = finished[:1] if "automatic" in labels else finished
        lines = [json.dumps(_answer(label, **SAID)) for label in finished]
        return SimpleNamespace(stdout="\n".join(["noise", *lines]), returncode=0 if labels == ["by hand"] else -24)

    monkeypatch.setattr(subprocess, "run", run)
    found = list(answers(["v5e:2x4"], 60, "microbatch"))
    assert [(each["program"], each.get("why", "")) for each in found] == [
        ("ours", ""),
        ("automatic", "more than 60 s of processor time"),
        ("by hand", ""),
    ]
    assert asked == [["ours", "automatic", "by hand"], ["by hand"]]
