"""The integer program: as good as trying everything, and as another solver says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import tapestry_jax as tp
from combinators.errors import PlanError
from tapestry_jax.searching.exact import solve as solving
from tapestry_jax.searching.exact.model import Model, undominated
from tapestry_jax.searching.exact.solve import solve
from tests.pairs.programs import draw_program
from tests.tapestry_jax.searching.exact.modelled import abstract, choices, modelled, problem_of
from tests.tapestry_jax.searching.programs import mlp

ORACLE = Path(__file__).with_name("by_cp_sat.py")


def model_of(graph: tp.Graph, grad: bool = False, **axes: int) -> Model:
    return modelled(problem_of(graph, abstract(**axes), grad=grad)).model


def least(model: Model, memory: float = math.inf) -> float:
    return min((model.price(each) for each in choices(model) if model.held(each) <= memory), default=math.inf)


@pytest.mark.parametrize("grad", [False, True])
def test_is_the_best_of_all_choices(grad: bool):
    model = model_of(mlp(64, 128, 256), grad, data=2)
    found = solve(model)
    assert found.seconds == pytest.approx(least(model))
    assert found.bound == pytest.approx(found.seconds, rel=1e-3)


def test_is_the_best_of_all_choices_of_random_programs():
    for number in (0, 1, 2, 7):
        model = model_of(draw_program(f"least {number}").graph, number % 2 == 1, data=2)
        assert math.prod(len(pick.seconds) for pick in model.picks) < 1_000
        assert solve(model).seconds == pytest.approx(least(model), rel=2e-4, abs=1e-12)


def test_keeps_to_the_memory():
    model = undominated(model_of(mlp(64, 128, 256), True, data=2))
    free = solve(model)
    for share in (0.9, 0.7):
        memory = share * model.held(free.choice)
        found = solve(model, memory)
        assert found.seconds == pytest.approx(least(model, memory))
        assert not found.choice or model.held(found.choice) <= memory
    assert solve(model, 0.0).choice == ()


def test_what_nobody_has_to_choose_changes_no_optimum():
    model = model_of(mlp(64, 128, 256), True, data=2)
    assert solve(undominated(model)).seconds == pytest.approx(solve(model).seconds, rel=2e-4)


def test_choices_that_are_ruled_out_are_not_given_again():
    model = model_of(mlp(64, 128, 256), data=2)
    first = solve(model)
    second = solve(model, without=[first.choice])
    assert second.choice != first.choice and second.seconds >= first.seconds


@pytest.mark.parametrize("grad", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_another_solver_says_the_same(grad: bool):
    model = undominated(model_of(mlp(256, 512, 1024), grad, data=2, model=2))
    assert by_cp_sat(model) == pytest.approx(solve(model).seconds, rel=1e-3)


def by_cp_sat(model: Model) -> float:
    """In a process of its own: both solvers bring a library of the same name."""
    values = [
        {
            "maker": value.maker,
            "labels": value.labels,
            "readers": [(reader.pick, reader.labels) for reader in value.readers],
            "pairs": [
                (*pair, seconds, *value.saved.get(pair, (0.0, 0.0)), value.shares.get(pair, ()))
                for pair, seconds in value.seconds.items()
            ],
            "common": value.common,
        }
        for value in model.values
    ]
    text = json.dumps({"picks": [(pick.seconds, pick.excess) for pick in model.picks], "values": values})
    run = subprocess.run([sys.executable, str(ORACLE)], input=text, capture_output=True, text=True, check=True)
    return float(run.stdout)


def test_a_missing_solver_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(solving, "is_installed", lambda: False)
    with pytest.raises(PlanError, match=r'"milp"\) needs the solver HiGHS, which is not installed') as error:
        solve(model_of(mlp(8, 8, 8), data=2))
    assert "pip install 'tapestry-jax[search]'" in str(error.value)
