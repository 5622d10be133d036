"""Commands on graph and plan files: what they print, their exit status, and what they say of wrong words and files."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.stored.json import checksum
from tapestry_jax.command import main
from tapestry_jax.commands.why import read_wanted
from tests.mutate_json import mutated

MESH = AbstractMesh((2, 4), ("data", "model"))
linear = tp.einsum("b k, k n -> b n")


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def mlp(x, up, down):
    return linear(linear(x, up), down)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, two plans of it, and another graph."""
    folder, types = tmp_path_factory.mktemp("files"), [{"batch": 4096, "embed": 1024}, {"embed": 1024, "mlp": 4096}]
    graph = tp.trace(mlp, *(tp.TensorType(each) for each in (*types, {"mlp": 4096, "embed": 1024})))
    megatron = tp.plan(graph, MESH, {"batch": "data", "mlp": "model"})
    one_whole = tp.plan(graph, MESH, {"batch": "data", "mlp": "model"}, ops={"einsum": {"mlp": None}})
    other = tp.trace(linear, tp.TensorType({"i": 8, "k": 8}), tp.TensorType({"k": 8, "n": 8}))
    named = {"graph": graph, "other": other, "megatron": megatron, "whole": one_whole}
    for name, made in named.items():
        (folder / f"{name}.json").write_text(made.to_json())
    for name, cut in (("graph", "half"), ("megatron", "cut")):
        text = (folder / f"{name}.json").read_text()
        (folder / f"{cut}.json").write_text(text[: len(text) // 2])
    return folder


@pytest.fixture
def ask(files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(files)

    def run(words: str) -> tuple[int, str, str]:
        status = main(words.split())
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


ON_GRAPH = "--graph graph.json"


def test_explain_prints_the_table(ask: Any, files: Path):
    status, told, _ = ask(f"explain megatron.json {ON_GRAPH} --grad")
    graph = tp.Graph.from_json((files / "graph.json").read_text())
    plan = tp.Plan.from_json((files / "megatron.json").read_text(), graph)
    assert (status, told) == (0, plan.explain(True) + "\n")


def test_explain_answers_in_json(ask: Any):
    status, told, _ = ask(f"explain megatron.json {ON_GRAPH} --json")
    found = json.loads(told)
    assert (status, found["mesh"]) == (0, {"data": 2, "model": 4})
    assert found["operations"][0] == {"path": "einsum", "dimensions": {"batch": "data", "embed": "", "mlp": "model"}}
    assert [each["kind"] for each in found["collectives"]] == ["all-reduce"]


def test_explain_prints_a_graph_alone(ask: Any, files: Path):
    graph = tp.Graph.from_json((files / "graph.json").read_text())
    assert ask("explain graph.json")[:2] == (0, f"{graph.show()}\n")
    found = json.loads(ask("explain graph.json --json")[1])
    assert found["operations"][1] == {"path": "einsum_1", "dimensions": ["batch", "mlp", "embed"]}
    assert "`graph` was edited" in ask_edited(ask, files)


def ask_edited(ask: Any, files: Path) -> str:
    (files / "edited.json").write_text((files / "graph.json").read_text().replace("einsum", "other"))
    return ask("explain edited.json")[2]


def test_verify_says_what_is_proved(ask: Any):
    assert ask(f"verify megatron.json {ON_GRAPH}")[:2] == (
        0, "mlp on data=2 x model=4: proved, from its schedule and from 16 blocks\n"
    )  # fmt: skip
    assert json.loads(ask(f"verify megatron.json {ON_GRAPH} --json")[1])["proved"] is True


def test_verify_fails_where_the_proof_does(ask: Any, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise tp.PlanError("`einsum`: rows [0:8] are computed twice")

    monkeypatch.setattr(importlib.import_module("tapestry_jax.plan"), "prove", refuse)
    assert ask(f"verify megatron.json {ON_GRAPH}")[:2] == (1, "`einsum`: rows [0:8] are computed twice\n")


def test_cost_is_priced_on_a_machine(ask: Any):
    status, told, _ = ask(f"cost megatron.json {ON_GRAPH} --machine v5p --grad --json")
    found = json.loads(told)
    assert (status, found["machine"], found["gradients"]) == (0, "v5p", True)
    status, told, _ = ask(f"cost megatron.json {ON_GRAPH} --machine v5p --grad --json --timeline")
    assert (status, json.loads(told)["makespan"]) == (0, pytest.approx(found["seconds"]))
    assert ask(f"cost megatron.json {ON_GRAPH} --machine h100 --timeline")[1].count("link model") == 1


def test_diff_fails_where_plans_differ(ask: Any):
    assert ask(f"diff megatron.json megatron.json {ON_GRAPH}")[:2] == (0, "mlp: the plans are the same\n")
    status, told, _ = ask(f"diff megatron.json whole.json {ON_GRAPH}")
    assert (status, told.splitlines()[2]) == (1, "  ops['einsum'], mlp: - -> whole")
    assert json.loads(ask(f"diff megatron.json whole.json {ON_GRAPH} --machine h100 --json")[1])["priced"]


def test_why_fails_where_the_exception_is_cheaper(ask: Any):
    status, told, _ = ask(f"why megatron.json einsum mlp=none {ON_GRAPH} --machine v5p --json")
    verdict = json.loads(told)["verdict"]
    reverse = json.loads(ask(f"why whole.json einsum mlp=model {ON_GRAPH} --machine v5p --json")[1])["verdict"]
    assert {verdict, reverse} == {"chosen cheaper", "target cheaper"}
    assert status == int(verdict == "target cheaper")
    status, told, _ = ask(f"why megatron.json einsum embed=model {ON_GRAPH} --machine v5p")
    assert (status, "`einsum` has both" in told) == (0, True)


def test_places_are_read_as_plans_write_them():
    found = read_wanted(
        ["a=x,y", "b=x,chunks(4)", "c=ring(x)", "d=x,halo(8)", "e=size(512)", "f=striped(x+y)", "g=none"]
    )
    assert found == {
        "a": ("x", "y"),
        "b": ("x", tp.chunks(4)),
        "c": (tp.ring("x"),),
        "d": ("x", tp.halo(depth=8)),
        "e": (tp.chunks(size=512),),
        "f": (tp.striped("x", "y"),),
        "g": None,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cost megatron.json", "tapestry cost: a plan file is read beside the file of its graph.\n  got megatron.json"),
        ("cost nowhere.json", "tapestry cost: 'nowhere.json' cannot be read.\n  FileNotFoundError"),
        ("cost .", "tapestry cost: '.' cannot be read.\n  it is no file"),
        ("cost /dev/zero", "it is no file"),
        (
            "explain megatron.json --graph megatron.json",
            "'megatron.json' is the file of a plan, expected one of a graph.\n",
        ),
        ("explain graph.json --graph graph.json", "'graph.json' is the file of a graph, expected one of a plan.\n"),
        ("cost graph.json", "'graph.json' is the file of a graph, expected one of a plan.\n"),
        (f"cost cut.json {ON_GRAPH}", "tapestry cost: 'cut.json' is refused.\n  a plan file is not JSON"),
        ("show megatron.json --graph half.json", "tapestry show: 'half.json' is refused.\n  the file is no JSON"),
        ("explain half.json", "tapestry explain: 'half.json' is refused.\n  the file is no JSON"),
        ("explain megatron.json --graph other.json", "the plan belongs to another graph"),
        (f"cost megatron.json {ON_GRAPH}", "the mesh does not say on which machine this is"),
        (f"cost megatron.json {ON_GRAPH} --machine h101", "no such machine is known\n  got 'h101'"),
        (f"cost megatron.json {ON_GRAPH} --machine v5e:4x4", "does not fill"),
        (f"why megatron.json nowhere mlp=model {ON_GRAPH} --machine v5p", "plan.why names the path 'nowhere'"),
        (f"why megatron.json einsum heads=model {ON_GRAPH} --machine v5p", "`heads` is no dimension of 'einsum'"),
        (f"why megatron.json einsum mlp=modal {ON_GRAPH} --machine v5p", "which the mesh does not have"),
        (f"why megatron.json einsum mlp {ON_GRAPH}", "tapestry why: cannot read 'mlp'.\n  no DIM=PLACE"),
        (f"why megatron.json einsum mlp=chunks(x) {ON_GRAPH}", "cannot read 'mlp=chunks(x)'"),
        (f"why megatron.json einsum mlp=circle(x) {ON_GRAPH}", "'circle(x)' is no place"),
        (f"why megatron.json einsum mlp=data, {ON_GRAPH}", "'' is no place"),
        (f"why megatron.json einsum mlp=data mlp=model {ON_GRAPH}", "`mlp` stands twice"),
        ("explain no_such_module:plan", "No module named 'no_such_module'"),
    ],
)
def test_wrong_words_and_files_are_told_in_our_words(words: str, said: str, ask: Any):
    status, told, error = ask(words)
    assert (status, told) == (2, "")
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "command", ["explain", "verify", "cost", "why", "diff", "show", "search", "train", "aot", "laws"]
)
def test_help_says_what_a_command_takes(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert told.startswith(f"usage: tapestry {command} ")
    assert command in ("aot", "laws") or "xit" in told.split("PLAN is a file")[0]


def test_a_file_of_a_newer_version_says_so(ask: Any, files: Path):
    stored = json.loads((files / "megatron.json").read_text())
    (files / "newer.json").write_text(json.dumps(stored | {"version": 7}))
    assert "a plan file has version 7, newer than this library reads" in ask(f"explain newer.json {ON_GRAPH}")[2]
    stored = json.loads((files / "graph.json").read_text())
    (files / "newer.json").write_text(json.dumps(stored | {"version": 7}))
    told = ask("explain megatron.json --graph newer.json")[2]
    assert "got 'tapestry-graph' 7, newer than this library reads" in told


def test_damaged_files_are_refused_and_no_more(ask: Any, files: Path):
    random = Random("damaged files")
    texts = {name: json.loads((files / f"{name}.json").read_text()) for name in ("graph", "megatron")}
    found: list[int] = []
    for number in range(60):
        name = ("graph", "megatron")[number % 2]
        stored = mutated(texts[name], random)
        part, sealed = ("graph", "sha256") if name == "graph" else ("content", "checksum")
        if isinstance(stored, dict) and random.random() < 0.8:
            # As careful as one who wants to do harm: the checksum is right.
            whole = (stored.get(part),) if name == "graph" else (stored.get(part), None)
            stored[sealed] = checksum(*whole)
        (files / "damaged.json").write_text(json.dumps(stored))
        graph, plan = ("damaged", "megatron") if name == "graph" else ("graph", "damaged")
        status, _, error = ask(f"verify {plan}.json --graph {graph}.json")
        assert "Traceback" not in error
        found.append(status)
    assert set(found) <= {0, 2}
    assert found.count(2) > 30


class Closed(io.StringIO):
    """What `head` leaves behind when it has read enough."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_goes_away_is_no_error(ask: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", Closed())
    status, told, error = ask(f"explain megatron.json {ON_GRAPH}")
    assert (status, told, error) == (2, "", "")
    # Nothing is left to be written when Python ends.
    assert sys.stdout.name == os.devnull
    sys.stdout.close()
