"""`tapestry show`: what it writes and prints, its exit status, and what it says of wrong words."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import pytest

import tapestry_jax as tp
from tapestry_jax.command import main


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a plan and its graph, and a module that makes the plan."""
    graph = tp.trace(tp.einsum("i k, k n -> i n"), *(jax.ShapeDtypeStruct((8, 8), "float32"),) * 2)
    plan = tp.plan(graph, jax.sharding.AbstractMesh((8,), ("data",)), {"k": "data"})
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "graph.json").write_text(graph.to_json())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(*more: str) -> list[str]:
    return ["show", "plan.json", "--graph", "graph.json", *more]


def test_a_page_is_written_and_its_path_printed(stored: Path, capsys: pytest.CaptureFixture[str]):
    assert main(called("-o", "page.html", "--machine", "h100", "--grad", "--memory")) == 0
    assert capsys.readouterr().out == f"{stored / 'page.html'}\n"
    text = (stored / "page.html").read_text(encoding="utf-8")
    assert '"machine":"H100"' in text
    assert '"temporaries":' in text


def test_without_a_name_it_lies_beside_the_plan(stored: Path, capsys: pytest.CaptureFixture[str]):
    assert main(called("--json")) == 0
    assert json.loads(capsys.readouterr().out) == {"show": 1, "page": str(stored / "plan.html")}
    assert '"cost":null' in (stored / "plan.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["-o", "missing/page.html"], "plan.show: the page cannot be written to 'missing/page.html'\n"),
        (["--machine", "abacus"], "no such machine is known\n"),
    ],
)
def test_wrong_words_are_told(stored: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str):
    assert main(called(*more)) == 2
    assert capsys.readouterr().err.startswith(told)
    assert sorted(each.name for each in stored.iterdir()) == ["graph.json", "plan.json"]
