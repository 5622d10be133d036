"""Plans found before are proved before they are used, and what is damaged is told and searched anew."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.searching import answered
from tapestry_jax.searching.question import kept
from tapestry_jax.searching.question.read import read_question
from tests.tapestry_jax.searching.programs import mlp

MESH = AbstractMesh((2,), ("data",))
GRAPH = mlp(8192, 1024, 4096)
FIXED: dict[str, Any] = {"embed": None, "out": None, "mlp": None}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was searched for, not found in a file."""
    asked: list[Any] = []
    best = answered._best  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(
        answered, "_best", lambda question, problem: (asked.append(problem), best(question, problem))[1]
    )
    return asked


def found(directory: Path, **options: Any) -> tp.Plan:
    return tp.search(GRAPH, MESH, "H100", entries={**FIXED, **options.pop("entries", {})}, cache=directory, **options)


def test_a_plan_is_searched_once(tmp_path: Path, searches: list[Any]):
    first, second = found(tmp_path / "plans"), found(tmp_path / "plans")
    assert len(searches) == 1
    assert (first.entries, first.schedule) == (second.entries, second.schedule)
    assert (first.gap, second.gap) == (0.0, None)
    assert [path.suffix for path in (tmp_path / "plans").iterdir()] == [".json"]


def test_a_plan_that_no_file_may_hold_is_told_and_not_kept(tmp_path: Path):
    # Such as of layers whose scope steers a terminal, which a search computes again.
    plan = tp.plan(GRAPH, AbstractMesh((2,), ("da\x1bta",)), {})
    with pytest.warns(UserWarning, match="not kept for the next time: the plan cannot be stored"):
        kept.keep(tmp_path, "key", plan)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "other",
    [
        {"memory": "60GB"},
        {"seed": 1},
        {"time_limit": 60},
        {"remat": False},
        {"entries": {"batch": None}},
        {"method": "exhaustive"},
    ],
    ids=str,
)
def test_another_question_is_another_plan(tmp_path: Path, searches: list[Any], other: dict[str, Any]):
    found(tmp_path)
    found(tmp_path, **other)
    assert len(searches) == 2


def test_what_is_kept_is_not_dearer_than_where_a_search_begins(tmp_path: Path, searches: list[Any]):
    types = (
        tp.TensorType({"b": 1, "k": 4096}),
        tp.TensorType({"k": 4096, "n": 4096}),
        tp.TensorType({"n": 4096, "o": 1}),
    )
    up, down = tp.einsum("b k, k n -> b n"), tp.einsum("b n, n o -> b o")
    graph, mesh = tp.trace(lambda x, a, b: down(up(x, a), b), *types), AbstractMesh((8,), ("a",))
    tp.search(graph, mesh, "v5p", cache=tmp_path)
    start = tp.plan(graph, mesh, {}, ops={"einsum": {"n": "a"}})
    for _ in range(2):
        found = tp.search(graph, mesh, "v5p", start=start, cache=tmp_path)
        assert found.cost().seconds <= start.cost("v5p").seconds
    assert len(searches) == 2


def test_the_key_says_machine_mesh_and_gradients():
    problem = read_question(GRAPH, MESH, "H100", None, {}).problems[0]
    others = [
        replace(problem, machine=tp.machines.V5P),
        replace(problem, mesh=AbstractMesh((4,), ("data",))),
        replace(problem, grad=True),
        replace(problem, graph=mlp(64, 32, 128)),
    ]
    keys = {kept.key_of(each, "auto", 0) for each in (problem, *others)}
    assert len(keys) == 5


def damage_a_pipe(path: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return "it is no file"


def damage_truncated(path: Path) -> str:
    path.write_text(path.read_text()[:-40])
    return "not JSON"


def damage_edited(path: Path) -> str:
    path.write_text(path.read_text().replace("batch", "mlp"))
    return "does not match its checksum"


def damage_binary(path: Path) -> str:
    path.write_bytes(b"\xff\xfe\x00")
    return "decode"


def damage_another_graph(path: Path) -> str:
    write_answer(path, tp.plan(mlp(64, 32, 128), MESH))
    return "belongs to another graph"


def damage_what_is_fixed(path: Path) -> str:
    write_answer(path, tp.plan(GRAPH, MESH, {"mlp": "data"}))
    return "it changes what is fixed"


def damage_another_answer(path: Path) -> str:
    """Right for this graph, and found for another question."""
    found(path.parent / "others", seed=1)
    (other,) = (path.parent / "others").iterdir()
    other.replace(path)
    (path.parent / "others").rmdir()
    return "it answers another question"


def damage_plan_alone(path: Path) -> str:
    path.write_text(tp.plan(GRAPH, MESH, FIXED).to_json())
    return "it answers another question"


def damage_nested(path: Path) -> str:
    path.write_text("[" * 100_000)
    return "it is not JSON"


def write_answer(path: Path, plan: tp.Plan) -> None:
    path.write_text(json.dumps({"question": path.stem, "plan": plan.to_json()}))


DAMAGES = [
    damage_truncated,
    damage_another_answer,
    damage_plan_alone,
    damage_nested,
    damage_edited,
    damage_binary,
    damage_another_graph,
    damage_what_is_fixed,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_told_and_searched_anew(tmp_path: Path, searches: list[Any], damage: Any):
    plan = found(tmp_path)
    (path,) = tmp_path.iterdir()
    text = damage(path)
    searches.clear()
    with pytest.warns(UserWarning, match=text):
        again = found(tmp_path)
    assert len(searches) == 1
    assert again.entries == plan.entries
    assert found(tmp_path).entries == plan.entries
    assert len(searches) == 1


def test_a_plan_that_does_not_fit_is_not_used(tmp_path: Path):
    question = read_question(GRAPH, MESH, "H100", None, {"cache": tmp_path, "entries": FIXED})
    (problem,) = question.problems
    plan = tp.plan(GRAPH, MESH, FIXED)
    kept.keep(tmp_path, "key", plan)
    assert kept.kept(tmp_path, "key", problem) is not None
    with pytest.warns(UserWarning, match="it does not fit into 1,000 B"):
        assert kept.kept(tmp_path, "key", replace(problem, memory=1000)) is None


def test_an_interrupted_store_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        kept.keep(tmp_path, "key", tp.plan(GRAPH, MESH, FIXED))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_stored_is_told_and_given(tmp_path: Path):
    plan = found(tmp_path)
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()
    with pytest.warns(UserWarning, match="tp.search: the plan") as told:
        assert found(tmp_path).entries == plan.entries
    assert [str(each.message).split(":")[1][:22] for each in told] == [
        " the plan kept in " + path.name[:4],
        " the plan found is not",
    ]
    assert list(tmp_path.iterdir()) == [path]
