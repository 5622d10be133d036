"""After the integer program: what it does not know is looked at from what it found, and nothing gets dearer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from benchmarks.models import Sizes, model_loss
from tapestry_jax.planning.entries.items import Chunks
from tapestry_jax.searching.choices import space_of
from tapestry_jax.searching.evaluated import Evaluated
from tapestry_jax.searching.exact.milp import placed_beside
from tapestry_jax.searching.finding import auto, improved
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.question.read import read_question
from tests.tapestry_jax.searching.programs import layers, mlp

pytest.importorskip("highspy")


@pytest.fixture(autouse=True)
def _solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs stand for those of many operations."""
    monkeypatch.setattr(auto, "FEW", 1)
    monkeypatch.setattr(auto, "MANY", 1)
    monkeypatch.setattr(auto, "anneal", lambda *_: pytest.fail("walked"))


def test_chunks_are_found_where_nothing_in_space_fits():
    graph, mesh = mlp(65536, 256, 1024), AbstractMesh((2, 2), ("data", "model"))
    memory = tp.search(graph, mesh, "h100", method="milp", grad=True).memory(True).total * 8 // 10
    with pytest.raises(tp.PlanError, match="word of method='milp' alone"):
        tp.search(graph, mesh, "h100", memory, method="milp", grad=True)
    plan = tp.search(graph, mesh, "h100", memory, grad=True)
    assert plan.memory(True).total <= memory
    assert any(isinstance(item, Chunks) for _, items in plan.entries for item in items)


def test_stages_are_found_over_slow_links():
    graph, mesh = layers(64, 4096, 16384), AbstractMesh((8, 8), ("stage", "model"))
    solved, found = (tp.search(graph, mesh, "h100:8x8", method=method, grad=True) for method in ("milp", "auto"))
    assert dict(found.entries)["layer"] == ("stage",)
    assert found.cost("h100:8x8", True).seconds < 0.95 * solved.cost("h100:8x8", True).seconds
    # The gap is a word about placements alone: none of them takes less than what was found.
    assert found.gap == 0.0


def test_what_stages_leave_is_placed_by_the_program():
    mesh = AbstractMesh((8, 8), ("stage", "model"))
    problem = read_question(layers(64, 4096, 8192), mesh, "h100", None, {"grad": True}).problems[0]
    beside, everywhere = (placed_beside(problem, *taken, Stop()) for taken in ((["stage"], ["batch"]), ([], [])))
    assert beside is not None and everywhere is not None
    assert {"batch": (), "mlp": ("model",)}.items() <= dict(beside.entries).items()
    # Without stages it lies on all of the mesh.
    assert "stage" not in str((beside.ops, beside.inputs)) and "stage" in str(everywhere.entries)


@pytest.mark.parametrize("taken", [["data", "model"], []])
def test_nothing_is_placed_beside_what_the_program_does_not_know(taken: list[str]):
    mesh = AbstractMesh((2, 2), ("data", "model"))
    chunked = {"entries": {"batch": tp.chunks(2)}}
    problem = read_question(mlp(64, 32, 128), mesh, "h100", None, chunked).problems[0]
    assert placed_beside(problem, taken, [], Stop()) is None


@pytest.mark.thorough
def test_stages_of_a_transformer_over_slow_links_are_as_good_as_those_by_hand():
    sizes = Sizes(layers=64, embed=8192, heads=64, vocab=32768, batch=8, seq=512, stacked=True)
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(replace(sizes.config, dtype=jnp.bfloat16), rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    graph, mesh = tp.trace(model_loss, module, tokens, tokens), AbstractMesh((8, 8), ("stage", "model"))
    placed = dict.fromkeys(("heads", "mlp", "vocab"), "model")
    by_hand = tp.plan(graph, mesh, {"layer": "stage", "batch": tp.chunks(8), **placed})
    found = tp.search(graph, mesh, "h100", grad=(0,))
    assert found.cost("h100", grad=(0,)).seconds <= 1.001 * by_hand.cost("h100", grad=(0,)).seconds


def test_long_programs_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(improved, "WORK", 4)
    mesh = AbstractMesh((2, 2), ("data", "model"))
    problem = read_question(mlp(64, 32, 128), mesh, "h100", None, {}).problems[0]
    found: list[Any] = list(improved.improved(problem, space_of(problem), problem.fixed, Stop()))
    assert set(found) == {problem.fixed}
    assert sum(isinstance(each, Evaluated) for each in problem.evaluated.values()) == 1
