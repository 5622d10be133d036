"""A plan that was found carries what else was evaluated best: as by hand, and why it was not taken."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.plan import asked_of
from tapestry_jax.report.diff import asked_otherwise
from tapestry_jax.searching.answering import best
from tapestry_jax.searching.answering.beside import MOST, beside
from tapestry_jax.searching.evaluated import Evaluated, evaluate
from tapestry_jax.searching.problem import Problem
from tests.tapestry_jax.searching.programs import mlp

MESH = AbstractMesh((2,), ("data",))
WIDE = mlp(8192, 1024, 4096)
NARROW: dict[str, Any] = {"embed": None, "out": None, "mlp": None}


def found(memory: int | None = None, **options: Any) -> tp.Plan:
    return tp.search(WIDE, MESH, "H100", memory, entries=NARROW, method="exhaustive", grad=True, **options)


@pytest.fixture(scope="module")
def free() -> tp.Plan:
    return found()


@pytest.fixture(scope="module")
def tight(free: tp.Plan) -> tp.Plan:
    return found(free.memory(True).total - 1)


def carried(plan: tp.Plan) -> tuple[Any, ...]:
    assert plan.weighed is not None
    return plan.weighed.candidates


def by_hand(plan: tp.Plan) -> Iterator[tp.Plan]:
    """All that the search may have placed here: the batch on the mesh, or in chunks, or both."""
    for items in ((), "data", *(own for n in (2, 4, 8, 16, 32) for own in (tp.chunks(n), ("data", tp.chunks(n))))):
        yield tp.plan(WIDE, MESH, {**NARROW, "batch": items}, inputs=_inputs(plan))


def _inputs(plan: tp.Plan) -> dict[str, dict[str, Any]]:
    return {name: dict(entries) for name, entries in plan.inputs}


def test_candidates_are_few_and_cheapest_first(free: tp.Plan, tight: tp.Plan):
    for plan in (free, tight):
        times = [each.seconds for each in carried(plan)]
        assert 1 < len(times) <= MOST and times == sorted(times)
        assert plan.weighed is not None
        assert plan.weighed.machine == tp.machines.H100 and plan.weighed.grad is True


def test_what_is_told_of_a_candidate_is_what_a_plan_by_hand_comes_to(free: tp.Plan):
    known = {tuple(map(str, asked_otherwise(asked_of(free), asked_of(each)))): each for each in by_hand(free)}
    same = [(each, known[each.otherwise]) for each in carried(free) if each.otherwise in known]
    assert same
    for each, other in same:
        assert each.seconds == other.cost("H100", True).seconds
        assert each.bytes in (None, other.memory(True).total)
    assert () not in {each.otherwise for each in carried(free)}


def test_without_want_of_memory_all_others_are_dearer(free: tp.Plan):
    least = free.cost("H100", True).seconds
    for each in carried(free):
        assert each.why.startswith("dearer: takes ") if each.seconds > least else each.why == "takes as long"


def test_what_is_cheaper_did_not_fit_and_both_kinds_are_told(free: tp.Plan, tight: tp.Plan):
    least, memory = tight.cost("H100", True).seconds, free.memory(True).total - 1
    cheaper = [each for each in carried(tight) if each.seconds < least]
    assert cheaper and len(cheaper) < len(carried(tight))
    assert all(each.why.startswith("does not fit") for each in cheaper)
    for each in carried(tight):
        if each.bytes is not None:
            assert (each.bytes > memory) == each.why.startswith("does not fit: needs ")
    assert cheaper[0].seconds == free.cost("H100", True).seconds
    assert cheaper[0].why == f"does not fit: needs {memory + 1:,} B where there are {memory:,} B"


def test_what_the_proof_refuses_is_told(monkeypatch: pytest.MonkeyPatch, free: tp.Plan):
    def prove(schedule: Any) -> None:
        if schedule == free.schedule:
            raise tp.PlanError("planted")

    monkeypatch.setattr(best, "prove", prove)
    with pytest.warns(RuntimeWarning, match="cannot be proved"):
        other = found()
    assert [each.why for each in carried(other) if each.seconds == free.cost("H100", True).seconds].count(
        "cannot be proved"
    )


def test_one_plan_in_several_words_counts_once():
    asked = asked_of(tp.plan(WIDE, MESH))
    said = asked_of(tp.plan(WIDE, MESH, {"batch": None}))
    cut = asked_of(tp.plan(WIDE, MESH, {"batch": "data"}))
    problem = Problem(WIDE, MESH, tp.machines.H100, None, False, asked)
    own = evaluate(problem, asked)
    evaluate(problem, said)
    assert isinstance(own, Evaluated) and beside(problem, own).candidates == ()
    evaluate(problem, cut)
    (other,) = beside(problem, own).candidates
    assert (other.otherwise, other.why) == (("the plan, batch: - -> data",), "not proposed by the method")


def test_it_is_data_and_no_part_of_files_texts_and_other_plans(free: tp.Plan):
    again = tp.Plan.from_json(free.to_json(), WIDE, MESH)
    assert again.weighed is None and again.to_json() == free.to_json() and not free.diff(again)
    assert tp.fsdp(free, "data").weighed is None
    assert "eighed" not in repr(free) and "candidate" not in f"{free!r}{free.explain()}"
    assert pickle.loads(pickle.dumps(free)).weighed == free.weighed


def test_an_answer_from_before_has_none(tmp_path: Any, free: tp.Plan):
    first, second = (found(cache=tmp_path) for _ in range(2))
    assert (first.weighed, second.weighed) == (free.weighed, None)
