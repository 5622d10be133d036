"""`tapestry aot` on a mesh of this machine: what it prints, its exit status, and what it says of wrong words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

import tapestry_jax as tp
from tapestry_jax.aot import seen
from tapestry_jax.command import main
from tapestry_jax.commands import aot
from tapestry_jax.hlo.collectives import Found

PIECES = """
import sys, jax, tapestry_jax as tp
graph = tp.trace(tp.einsum("i k, k n -> i n"), *(jax.ShapeDtypeStruct((8, 8), "float32"),) * 2)
plan = tp.plan(graph, jax.sharding.AbstractMesh((8,), ("data",)), {"k": "data"})
number = 3
def made(): return plan
def raises(): raise ValueError("my own fault")
def leaves(): sys.exit(0)
def refused(): return tp.plan(graph, jax.sharding.AbstractMesh((8,), ("data",)), {"q": "data"})
def asks(x): return plan
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mesh8: Any) -> Path:
    (tmp_path / "pieces_for_aot.py").write_text(PIECES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(aot, "topology", lambda name, **axes: mesh8)
    return tmp_path


@pytest.mark.parametrize("piece", ["plan", "made"])
def test_a_plan_is_compiled_and_told(piece: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aot", f"pieces_for_aot:{piece}", "--topology", "v5e:2x4", "--hlo", "program.txt"]) == 0
    assert "all-reduce over data" in capsys.readouterr().out
    assert (here / "program.txt").read_text().startswith("HloModule")


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        ("number", "is no plan"),
        ("asks", "is no plan"),
        ("nothing", "has no 'nothing'"),
        ("raises", "ValueError: my own fault"),
        ("leaves", "it called sys.exit(0)"),
        ("refused", "no dimension of the graph"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_no_plan_is_told_without_a_traceback(piece: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aot", f"pieces_for_aot:{piece}", "--topology", "v5e:2x4"]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


@pytest.mark.usefixtures("here")
def test_a_function_that_raises_is_told_where(capsys: pytest.CaptureFixture[str]) -> None:
    main(["aot", "pieces_for_aot:raises", "--topology", "v5e:2x4"])
    assert "pieces_for_aot.py, line 7" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_one_file_holds_one_program(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["aot", "pieces_for_aot:plan", "--topology", "v5e:2x4", "--topology", "h100:1x8", "--hlo", "x.txt"]
    assert main(words) == 2
    assert "Ask for one topology at a time" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("place", ["no/such/folder.txt", ".", "", "x" * 300])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_compiled(
    capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert main(["aot", "pieces_for_aot:plan", "--topology", "v5e:2x4", "--hlo", place]) == 2
    said = capsys.readouterr()
    assert f"got --hlo {place!r:.300}" in said.err and not said.out


@pytest.fixture
def told(mesh8: Any) -> seen.Seen:
    graph = tp.trace(tp.einsum("i k, k n -> i n"), *(jax.ShapeDtypeStruct((8, 8), "float32"),) * 2)
    return tp.plan(graph, mesh8, {"k": "data"}).compile_only()


def test_more_than_was_predicted_is_told_and_fails(
    told: seen.Seen, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = replace(told, collectives=(*told.collectives, Found("all-to-all", ("data",), 64, 2)))
    monkeypatch.setattr(tp.Plan, "compile_only", lambda self, mesh, grad: more)
    assert main(["aot", "pieces_for_aot:plan", "--topology", "v5e:2x4"]) == 1
    assert "NOT PREDICTED: 128 B of all-to-all over data" in capsys.readouterr().out


@pytest.mark.parametrize(("perhaps", "unpredicted"), [("all-reduce", 0), ("", 256)])
def test_kinds_count_together_where_the_compiler_chooses(told: seen.Seen, perhaps: str, unpredicted: int) -> None:
    predicted = tuple(replace(each, kind="reduce-scatter", perhaps=perhaps) for each in told.predicted)
    exchanged = replace(told, predicted=predicted)
    assert sum(exchanged.unpredicted.values()) == unpredicted
    assert ("or as all-reduces" in str(exchanged)) == (not unpredicted)
    # It is sent once: not both ways.
    both = replace(exchanged, collectives=(*told.collectives, Found("reduce-scatter", ("data",), 256, 1)))
    assert both.unpredicted


def test_memory_is_told_beside_what_was_predicted(told: seen.Seen) -> None:
    line = next(line for line in str(told).splitlines() if "together" in line)
    assert line.split() == ["together", f"{told.needed.total:,}", "B", f"{told.memory.total:,}", "B"]
    assert told.needed.arguments == told.memory.arguments > 0


def test_less_than_was_predicted_is_no_failure(told: seen.Seen) -> None:
    assert replace(told, collectives=()).unpredicted == {}
