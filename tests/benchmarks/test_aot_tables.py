"""What the compilers said as tables, and what becomes of a program that they did not finish. Asking them: tests/aot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.aot_kept import Kept
from benchmarks.aot_run import answers
from benchmarks.aot_table import tables

SAID = {"seconds": 1.0, "title": "a row", "cycles": 900, "temporaries": 8, "sent": 64, "hidden": 0.5, "lookups": 3}
SENT = {"collectives": {"all-gather": 2, "all-reduce": 1}}


def _answer(program: str, **others: Any) -> dict[str, Any]:
    return {"machine": "v5e:2x4", "row": "ring", "program": program, **others}


def test_ours_stands_beside_its_peers_and_what_is_missing_is_named() -> None:
    shown = tables(
        [
            _answer("ours", **SAID, **SENT),
            _answer("automatic", **{**SAID, "cycles": 1000, "lookups": 0}),
            _answer("by hand", why="more than 60 s of processor time"),
        ],
        60,
    )
    assert "| a row | 900 (+3) | 1,000 | 0.900 | 8 | 8 | 1.000 |" in shown
    assert "| a row | 64 | 64 | 50% | 2 all-gather, 1 all-reduce |" in shown
    assert "- ring, by hand: more than 60 s of processor time." in shown
    assert "at most 60 s of processor time" in shown


def test_a_sum_of_cycles_that_lacks_kernels_is_not_given_and_they_are_counted() -> None:
    shown = tables([_answer("ours", **{**SAID, "cycles": None, "kernels": 32}), _answer("automatic", **SAID)], 60)
    assert "| a row | (32 kernels) | 900 (+3) | 8 | 8 | 1.000 |" in shown


def test_columns_in_which_nothing_is_said_are_left_out() -> None:
    shown = tables([_answer("ours", **{**SAID, "cycles": None}), _answer("automatic", **{**SAID, "cycles": None})], 60)
    assert "cycles" not in shown and "| case | temporaries, ours | automatic | ratio |" in shown


def test_what_is_alive_at_once_stands_beside_what_is_added_up() -> None:
    answers = [_answer("ours", **SAID, peak=30), _answer("automatic", **SAID, peak=40)]
    shown = tables(answers, 60)
    assert "| temporaries, ours | automatic | ratio | alive at once, ours | automatic | ratio |" in shown
    assert "| 8 | 8 | 1.000 | 30 | 40 | 0.750 |" in shown


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
    found = list(answers(["v5e:2x4"], 60, ["microbatch"]))
    assert [(each["program"], each.get("why", "")) for each in found] == [
        ("ours", ""),
        ("automatic", "more than 60 s of processor time"),
        ("by hand", ""),
    ]
    assert asked == [["ours", "automatic", "by hand"], ["by hand"]]


def test_what_is_kept_is_not_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> Any:
        labels = command[command.index("60") + 1 :]
        asked.extend(labels)
        return SimpleNamespace(stdout="\n".join(json.dumps(_answer(label, **SAID)) for label in labels), returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    kept = Kept(tmp_path / "new")
    kept.add(_answer("ours", **SAID), 60)
    kept.add(_answer("automatic", why="more than 20 s of processor time"), 20)
    kept.add(_answer("by hand", why="more than 60 s of processor time"), 60)
    assert [each["program"] for each in answers(["v5e:2x4"], 60, ["ring"], kept)] == ["automatic"]
    assert asked == ["automatic"]
    # The last answer stands where the first one stood.
    assert [(each["program"], "why" in each) for each in kept.answers()] == [
        ("ours", False),
        ("automatic", False),
        ("by hand", True),
    ]


def test_answers_of_other_compilers_and_half_a_line_are_no_answers(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add(_answer("ours", **SAID), 60)
    path = tmp_path / "answers.jsonl"
    line = path.read_text()
    path.write_text(line.replace("jax ", "older jax ").replace("ours", "by hand") + line + line[:40])
    assert [each["program"] for each in kept.answers()] == ["ours"]


def test_the_table_is_written_of_what_is_kept_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    Kept(tmp_path).add(_answer("ours", **SAID), 60)
    assert main(["aot", "--table", "--kept", str(tmp_path)]) == 0
    assert "| a row | 900 (+3) | 8 |" in capsys.readouterr().out


def test_a_row_is_named_whole_or_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[str] = []

    def run(command: list[str], **_: Any) -> Any:
        rows.append(command[4])
        labels = command[command.index("60") + 1 :]
        return SimpleNamespace(stdout="\n".join(json.dumps(_answer(label, **SAID)) for label in labels), returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    list(answers(["v5e:2x4"], 60, ["ring", "stencil"]))
    assert rows == ["ring", "deep stencil"]
    with pytest.raises(SystemExit, match="no row is called so, or holds 'rings and things'; there are "):
        list(answers(["v5e:2x4"], 60, ["ring", "rings and things"]))
