"""Files that were made to do harm: each is refused by a text that helps, within bounds, and runs nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import combinators as tp
from combinators.stored import step_budget
from combinators.stored.readable import Readable
from combinators.stored.step_budget import bounded_steps
from tests.combinators.hostile import TOLD
from tests.combinators.hostile_parts import signed
from tests.mutate_json import HOSTILE, mutated, parts

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "combinators" / "damaged_readers.py")],
        cwd=tmp_path_factory.mktemp("hostile"),
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "RUN" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_hostile_files_are_refused_and_run_nothing(found: dict[str, Any]) -> None:
    told: dict[str, tuple[str, str, float]] = found["told"]
    assert {name: kind for name, (kind, _, _) in told.items() if kind != "FormatError"} == {}
    assert {name: told[name][1] for name, word in TOLD.items() if word not in told[name][1]} == {}
    for name, (_, text, seconds) in told.items():
        lines = text.split("\n")
        assert len(lines) > 1 and lines[-1].endswith("."), name  # every text ends with a remedy
        assert text.replace("\n", "").isprintable() and max(map(len, lines)) <= 400, name
        assert seconds < 20, name  # of the processor; by far most take none
    assert found["harm"] == []
    assert found["megabytes"] < 500


def test_every_damage_to_the_readers_is_seen_by_a_hostile_file(found: dict[str, Any]) -> None:
    assert found["damages"] > 70 and found["unseen"] == []
    assert found["seen without damage"] == []


def test_edited_graphs_are_read_or_refused() -> None:
    stored = json.loads((Path(__file__).parents[1] / "data" / "graph_1.json").read_text())
    whole = tp.Graph.from_json(json.dumps(stored))
    chosen = [node.path for node in whole.nodes if node.operands][::3]
    graphs = [json.loads(whole.subgraph(path).to_json())["graph"] for path in chosen]
    pool = [part for graph in graphs for part in parts(graph)]
    draws, refused = random.Random(0), 0
    for _ in range(150):
        try:
            graph = tp.Graph.from_json(signed(mutated(draws.choice(graphs), draws, pool)))
        except tp.FormatError:
            refused += 1
        else:
            assert tp.Graph.from_json(graph.to_json()).key == graph.key
    assert 100 < refused < 150


def test_mutations_end_and_leave_what_is_put_in_as_it_was() -> None:
    before, draws = json.dumps(HOSTILE), random.Random(77)
    for _ in range(300):
        mutated({"sizes": [1, 2, None, True], "cuts": {"a": 1, "b": [2, [3]]}, "n": 7}, draws)
    assert json.dumps(HOSTILE) == before


def test_more_steps_than_allowed_end_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_budget, "BASE", 2000)

    def endless() -> None:
        x = tp.TensorType((2,))
        while True:
            tp.trace(tp.Map(jnp.sin), x)

    with pytest.raises(tp.FormatError, match="more work than its length explains"), bounded_steps(1):
        endless()
    assert sys.getprofile() is None
    assert tp.Map(jnp.sin)(jnp.zeros(2)).tolist() == [0.0, 0.0]  # and JAX works on


@pytest.mark.parametrize("asked", [any, list])
def test_the_end_does_not_fall_on_a_generator_that_is_closed(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    # What is raised there is ignored, and nothing would be counted any more.
    numbers: dict[str, Any] = {"__name__": "combinators.mine"}
    exec("def step(): return 1\ndef numbers():\n    yield step()\n    yield step()", numbers)
    for most in range(60):
        monkeypatch.setattr(step_budget, "BASE", most)
        with pytest.raises(tp.FormatError), bounded_steps(0):
            [asked(numbers["numbers"]()) for _ in range(1000)]


@pytest.mark.parametrize(
    ("allow", "text"),
    [
        ("mypackage", 'Pass a tuple of names: allow=("mypackage",).'),
        ((1,), "Pass a tuple of names"),
        (("my package",), "Pass a tuple of names"),
        (("os",), "allow= cannot open `os` to files"),
        (("os:system",), "allow= cannot open `os:system` to files"),
        (("__main__",), "allow= cannot open `__main__` to files"),
        (("jax",), 'Allow single functions of it: allow=("jax:name",).'),
    ],
)
def test_what_cannot_be_allowed(allow: Any, text: str) -> None:
    with pytest.raises(tp.GraphError) as caught:
        tp.Graph.from_json("", allow=allow)
    assert text in str(caught.value)


def test_a_single_function_is_allowed_by_its_name() -> None:
    names = Readable.of(("jax.numpy:pad", "math:prod"))
    assert names.find("jax.numpy:pad", "it") is jnp.pad
    with pytest.raises(tp.FormatError, match="is not among what a file may name"):
        names.find("jax.numpy:load", "it")
