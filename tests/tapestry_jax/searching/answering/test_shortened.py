"""What a plan says to no effect is dropped, what has one stays, and so does what the user fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.plan import asked_of
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching import evaluated
from tapestry_jax.searching.answering import shortened as subject
from tapestry_jax.searching.answering.beside import LONG
from tapestry_jax.searching.answering.shortened import shortened
from tapestry_jax.searching.evaluated import Evaluated, evaluate, weigh
from tapestry_jax.searching.finding import anneal
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.question.read import read_question
from tests.tapestry_jax.searching.exact.test_build import block
from tests.tapestry_jax.searching.programs import mlp

MESH = AbstractMesh((2, 2), ("data", "model"))
GRAPH = mlp(8192, 1024, 4096)
PLAIN: dict[str, Any] = {"batch": "data", "mlp": "model"}
SAID: dict[str, dict[str, Any]] = {
    "whole": {"entries": {**PLAIN, "embed": None, "out": None}},
    "exceptions": {"entries": PLAIN, "ops": {"einsum": {"embed": None, "mlp": "model"}, "gelu": {"batch": "data"}}},
    "an exception that another one needs": {
        "entries": {**PLAIN, "embed": "data", "out": "model"},
        "ops": {"einsum": {"embed": None}, "einsum_1": {"out": None}},
    },
    "layouts": {"entries": PLAIN, "inputs": {"x": {"batch": "data"}, "w1": {"mlp": "model"}, "w2": {"mlp": "model"}}},
}


def problem(**fixed: Any) -> Problem:
    return read_question(GRAPH, MESH, "H100", None, {"grad": True, **fixed}).problems[0]


def short(asked: Asked, problem: Problem) -> Evaluated:
    """What is left, and never worse."""
    first = found = evaluate(problem, asked)
    assert isinstance(first, Evaluated) and isinstance(found, Evaluated)
    for each in shortened(problem, first, lambda _: True):
        assert each.seconds <= found.seconds * (1 + 1e-9)
        assert weigh(problem, each).total <= weigh(problem, found).total
        found = each
    return found


@pytest.mark.parametrize("said", list(SAID.values()), ids=list(SAID))
def test_what_has_no_effect_is_dropped(said: dict[str, Any]):
    asked = asked_of(tp.plan(GRAPH, MESH, said["entries"], ops=said.get("ops"), inputs=said.get("inputs")))
    assert short(asked, problem()).asked == asked_of(tp.plan(GRAPH, MESH, PLAIN))


def test_what_is_fixed_stays():
    fixed: dict[str, Any] = {
        "entries": {"embed": None},
        "ops": {"gelu": {"batch": "data"}},
        "inputs": {"w1": {"mlp": "model"}},
    }
    more = asked_of(
        tp.plan(GRAPH, MESH, {"embed": None, **PLAIN, "out": None}, ops=fixed["ops"], inputs=fixed["inputs"])
    )
    left = short(more, problem(**fixed)).asked
    assert left == asked_of(tp.plan(GRAPH, MESH, {"embed": None, **PLAIN}, ops=fixed["ops"], inputs=fixed["inputs"]))


def test_layers_that_are_to_be_computed_again_stay_so():
    asked = asked_of(tp.plan(graph := block(2), MESH, remat=True))
    for fixed, left in ((True, asked.remat), (None, ())):
        given = read_question(graph, MESH, "H100", None, {"grad": True, "remat": fixed}).problems[0]
        free = replace(given, memory=None)
        first = evaluate(free, asked)
        assert isinstance(first, Evaluated)
        *_, last = first, *shortened(free, first, lambda _: True)
        assert last.asked.remat == left


def test_what_saves_memory_stays_though_it_costs_nothing():
    chunked = asked_of(tp.plan(GRAPH, MESH, {**PLAIN, "batch": ("data", tp.chunks(8))}))
    forward = replace(problem(), grad=False)
    plain = evaluate(forward, asked_of(tp.plan(GRAPH, MESH, PLAIN)))
    found = evaluate(forward, chunked)
    assert isinstance(plain, Evaluated) and isinstance(found, Evaluated)
    assert weigh(forward, found).total < weigh(forward, plain).total
    assert short(chunked, forward).asked == chunked


@pytest.mark.parametrize("is_long", [False, True])
def test_what_seems_larger_is_not_weighed_nor_priced_where_it_is_long(monkeypatch: pytest.MonkeyPatch, is_long: bool):
    monkeypatch.setattr(subject, "LONG", 0 if is_long else LONG)
    stored: dict[str, Any] = {"w1": {"embed": "data", "mlp": "model"}, "w2": {"mlp": "model", "out": "data"}}
    asked = asked_of(tp.plan(GRAPH, MESH, PLAIN, inputs=stored))
    bound = problem()
    found = evaluate(bound, asked)
    assert isinstance(found, Evaluated)
    assert not list(shortened(bound, found, lambda _: True))
    assert len(bound.evaluated) > 1 and bool(bound.priced) != is_long
    faster = [each for each in bound.evaluated.values() if each.asked != asked and each.seconds <= found.seconds]
    assert faster and not bound.weighed


def test_what_has_the_same_schedule_is_not_priced_again(monkeypatch: pytest.MonkeyPatch):
    said = SAID["whole"]
    bound = problem()
    first = evaluate(bound, asked_of(tp.plan(GRAPH, MESH, said["entries"])))
    assert isinstance(first, Evaluated) and first.priced().is_priced
    monkeypatch.setattr(evaluated, "price", lambda *_: pytest.fail("priced"))
    same = evaluate(bound, asked_of(tp.plan(GRAPH, MESH, PLAIN)), first)
    assert isinstance(same, Evaluated) and same.schedule is first.schedule and same.seconds == first.seconds


def test_what_is_needed_is_tried_once():
    asked = asked_of(tp.plan(GRAPH, MESH, {**PLAIN, "embed": None}, ops={"gelu": {"mlp": None}}))
    bound = replace(problem(), memory=None)
    first = evaluate(bound, asked)
    assert isinstance(first, Evaluated)
    # All that cuts nothing, all else, and each by itself.
    assert len(list(shortened(bound, first, lambda _: True))) <= 2
    assert len(bound.evaluated) <= 1 + 2 + 4


def test_what_saves_time_stays_where_memory_has_no_bound():
    free = replace(problem(), memory=None)
    asked = asked_of(tp.plan(GRAPH, MESH, PLAIN))
    found = evaluate(free, asked)
    assert isinstance(found, Evaluated)
    assert not list(shortened(free, found, lambda _: True))


def test_another_schedule_is_proved_before_it_is_taken():
    asked = asked_of(tp.plan(GRAPH, MESH, {**PLAIN, "batch": ("data", tp.chunks(2))}))
    first = evaluate(problem(), asked)
    assert isinstance(first, Evaluated)
    vars(first)["seconds"] = 1.0
    tried: list[Evaluated] = []
    assert not list(shortened(replace(problem(), memory=None), first, lambda other: bool(tried.append(other))))
    assert tried


@pytest.mark.parametrize("method", ["anneal", "milp"])
def test_plans_found_say_no_more_than_has_an_effect(monkeypatch: pytest.MonkeyPatch, method: str):
    monkeypatch.setattr(anneal, "TRIED", 80)
    plan = tp.search(GRAPH, MESH, "H100", method=method, grad=True)
    assert (plan.ops, plan.inputs) == ((), ())
    assert all(items for _, items in plan.entries)


def test_arguments_that_lie_so_by_themselves_are_dropped_at_once_and_the_others_stay():
    def layer(rows: Any, up: Any, down: Any) -> Any:
        hidden = tp.einsum("batch embed, embed mlp -> batch mlp")(rows, up)
        return tp.einsum("batch mlp, mlp out -> batch out")(hidden, down)

    sizes = {"batch": 8192, "embed": 1024}, {"embed": 1024, "mlp": 4096}, {"mlp": 4096, "out": 1024}
    graph = tp.trace(layer, *map(tp.TensorType, sizes))
    inputs = {"rows": {"batch": "data"}, "up": {"mlp": "model"}, "down": {"mlp": "data"}}
    where = read_question(graph, MESH, "H100", None, {"grad": True}).problems[0]
    first = evaluate(where, asked_of(tp.plan(graph, MESH, PLAIN, inputs=inputs)))
    assert isinstance(first, Evaluated)
    shorter = next(shortened(where, first, lambda other: False))
    assert shorter.asked.inputs == (("down", (("mlp", ("data",)),)),)
    assert shorter.schedule == first.schedule


def test_no_more_is_planned_than_the_work_that_is_left(monkeypatch: pytest.MonkeyPatch):
    many: dict[str, Any] = {**PLAIN, "embed": "data", "out": "model"}
    asked = asked_of(tp.plan(GRAPH, MESH, many, ops=SAID["an exception that another one needs"]["ops"]))
    planned: list[int] = []
    for work in (0, 3 * 3, 10_000):
        monkeypatch.setattr(subject, "WORK", work)
        bound = problem()
        first = evaluate(bound, asked)
        assert isinstance(first, Evaluated)
        *_, last = first, *shortened(bound, first, lambda _: True)
        assert last.seconds <= first.seconds * (1 + 1e-9)
        planned.append(sum(isinstance(each, Evaluated) for each in bound.evaluated.values()))
    assert planned[0] < planned[1] < planned[2]
