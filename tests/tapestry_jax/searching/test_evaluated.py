"""What a candidate comes to is found once for each schedule, however it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching import evaluated
from tapestry_jax.searching.evaluated import Evaluated, Refused, evaluate, weigh
from tapestry_jax.searching.finding import auto
from tapestry_jax.searching.problem import Problem
from tests.tapestry_jax.searching.programs import mlp

MESH = AbstractMesh((2, 2), ("data", "model"))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The schedules that were traced to weigh them."""
    found: list[Any] = []
    plain = evaluated.memory_needed

    def counted(schedule: Any, *args: Any) -> Any:
        found.append(schedule)
        return plain(schedule, *args)

    monkeypatch.setattr(evaluated, "memory_needed", counted)
    return found


def test_one_schedule_in_two_words_is_weighed_once(traced: list[Any]):
    problem = Problem(mlp(256, 64, 256), MESH, tp.machines.H100, None, True, Asked((), (), (), ()))
    named = replace(problem.fixed, entries=(("mlp", ("model",)),))
    words = named, replace(named, entries=(*named.entries, ("embed", ())))
    first, again = (found for each in words if isinstance(found := evaluate(problem, each), Evaluated))
    # They cut all operations alike: its steps are written out once, and priced once.
    assert again.schedule is first.schedule and not problem.priced
    assert first.seconds == again.seconds and len(problem.schedules) == len(problem.priced) == 1
    assert weigh(problem, first) == weigh(problem, again) and len(traced) == 1


def test_entries_that_cut_nothing_are_refused_though_their_schedule_is_known():
    problem = Problem(mlp(256, 64, 256), MESH, tp.machines.H100, None, True, Asked((), (), (), ()))
    unused = replace(problem.fixed, entries=(("nothing", ("model",)),))
    assert isinstance(evaluate(problem, problem.fixed), Evaluated) and isinstance(evaluate(problem, unused), Refused)


def test_loops_in_time_are_those_of_the_entries_in_their_order():
    problem = Problem(mlp(256, 64, 256), MESH, tp.machines.H100, None, True, Asked((), (), (), ()))
    loops = ("batch", (tp.chunks(2),)), ("mlp", (tp.chunks(2),))
    words = (replace(problem.fixed, entries=entries) for entries in (loops, loops[::-1]))
    first, other = (found for each in words if isinstance(found := evaluate(problem, each), Evaluated))
    assert first.schedule != other.schedule


def test_schedules_of_one_price_are_weighed_apart(traced: list[Any]):
    problem = Problem(mlp(256, 64, 256), MESH, tp.machines.H100, None, True, Asked((), (), (), ()))
    words = (replace(problem.fixed, entries=(("mlp", axes),)) for axes in ((), ("model",)))
    first, other = (found for each in words if isinstance(found := evaluate(problem, each), Evaluated))
    vars(other)["seconds"] = first.seconds
    assert weigh(problem, first).total > weigh(problem, other).total
    assert len(traced) == 2


def test_where_something_fits_other_proposals_are_not_weighed(traced: list[Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(auto, "FEW", 0)
    monkeypatch.setattr(auto, "MANY", 0)
    plan = tp.search(mlp(2**16, 512, 2048), MESH, "H100", "20GB", grad=True)
    assert plan.memory(True).total <= 20e9 and len(traced) == 1
