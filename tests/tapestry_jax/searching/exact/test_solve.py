"""The integer program: as good as trying everything, and as another solver says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from combinators.errors import PlanError
from tapestry_jax.machines.figures import Figure
from tapestry_jax.searching.exact import highs
from tapestry_jax.searching.exact import solve as solving
from tapestry_jax.searching.exact.model import Model, Pick, Reader, Value, undominated
from tapestry_jax.searching.exact.program import Program, Rows, program_of
from tapestry_jax.searching.exact.solve import Solution, proved, solve
from tests.pairs.programs import draw_program
from tests.tapestry_jax.searching.exact.modelled import abstract, choices, modelled, problem_of
from tests.tapestry_jax.searching.exact.test_build import block
from tests.tapestry_jax.searching.programs import mlp
from tests.thoroughly import thoroughly

EXACT = 1e-4
ORACLE = Path(__file__).with_name("by_cp_sat.py")


def model_of(graph: tp.Graph, grad: bool = False, **axes: int) -> Model:
    return modelled(problem_of(graph, abstract(**axes), grad=grad)).model


def least(model: Model, memory: float = math.inf) -> float:
    return min((model.price(each) for each in choices(model) if model.held(each) <= memory), default=math.inf)


@pytest.mark.parametrize("grad", [False, True])
def test_is_the_best_of_all_choices(grad: bool):
    model = model_of(mlp(64, 128, 256), grad, data=2)
    found = solve(model, gap=EXACT)
    assert found.seconds == pytest.approx(least(model))
    assert found.bound == pytest.approx(found.seconds, rel=1e-3)


def test_is_the_best_of_all_choices_of_random_programs():
    for number in (0, 1, 2, 7):
        model = model_of(draw_program(f"least {number}").graph, number % 2 == 1, data=2)
        assert math.prod(len(pick.seconds) for pick in model.picks) < 1_000
        assert solve(model, gap=EXACT).seconds == pytest.approx(least(model), rel=2e-4, abs=1e-12)


def test_keeps_to_the_memory():
    model = undominated(model_of(mlp(64, 128, 256), True, data=2))
    free = solve(model, gap=EXACT)
    for share in (0.9, 0.7):
        memory = share * model.held(free.choice)
        found = solve(model, memory, gap=EXACT)
        assert found.seconds == pytest.approx(least(model, memory))
        assert not found.choice or model.held(found.choice) <= memory
    assert solve(model, 0.0).choice == ()


def test_what_nobody_has_to_choose_changes_no_optimum():
    model = model_of(mlp(64, 128, 256), True, data=2)
    assert solve(undominated(model), gap=EXACT).seconds == pytest.approx(solve(model, gap=EXACT).seconds, rel=2e-4)


def test_choices_that_are_ruled_out_are_not_given_again():
    model = model_of(mlp(64, 128, 256), data=2)
    first = solve(model, gap=EXACT)
    second = solve(model, gap=EXACT, without=[first.choice])
    assert second.choice != first.choice and second.seconds >= first.seconds


@pytest.mark.parametrize("grad", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_another_solver_says_the_same(grad: bool):
    model = undominated(model_of(mlp(256, 512, 1024), grad, data=2, model=2))
    assert by_cp_sat(model) == pytest.approx(solve(model, gap=EXACT).seconds, rel=1e-3)


def by_cp_sat(model: Model) -> float:
    """In a process of its own: both solvers bring a library of the same name."""
    numbers = {each: number for number, each in enumerate(model.together)}

    def together(value: Value, pair: Any) -> list[int]:
        return [numbers[each] for each in value.together.get(pair, ())]

    values = [
        {
            "maker": value.maker,
            "labels": value.labels,
            "readers": [(reader.pick, reader.labels) for reader in value.readers],
            "pairs": [
                (*pair, seconds, *value.saved.get(pair, (0.0, 0.0)), value.shares.get(pair, ()), together(value, pair))
                for pair, seconds in value.seconds.items()
            ],
            "common": value.common,
        }
        for value in model.values
    ]
    picks = [(pick.seconds, pick.excess) for pick in model.picks]
    text = json.dumps({"picks": picks, "values": values, "together": [*model.together.values()]})
    run = subprocess.run([sys.executable, str(ORACLE)], input=text, capture_output=True, text=True, check=True)
    return float(run.stdout)


def drawn_model(number: int) -> Model:
    graph = mlp(64, 128, 256) if number == 1 else draw_program(f"bound {number}").graph
    model = model_of(graph, number % 2 == 1, data=2)
    if number != 5:
        return model
    # Where something else is there in the end: half of what is held, or three times as much.
    picks = [
        replace(pick, after=tuple(each * (0.5, 3.0)[at % 2] for each in pick.held))
        for at, pick in enumerate(model.picks)
    ]
    return replace(model, picks=tuple(picks))


@pytest.mark.parametrize(
    ("first", "gap"),
    [
        *((1e-6, 1e-4), (0.05, 0.2)),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((1e-6, 0.01), (1e-6, 0.2))),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((0.05, 1e-4), (0.05, 0.01))),
    ],
)
def test_no_choice_is_below_the_bound_and_what_is_found_is_within_the_gap(
    monkeypatch: pytest.MonkeyPatch, first: float, gap: float
):
    monkeypatch.setattr(solving, "_FIRST", first)
    for number in (1, 3, 5, 8):
        model = drawn_model(number)
        most = max(model.held(each) for each in choices(model))
        for memory in (math.inf, 0.8 * most, 0.6 * most):
            found, best = solve(model, memory, gap=gap), least(model, memory)
            assert found.bound <= best * (1 + 1e-9)
            assert bool(found.choice) == (best < math.inf)
            if found.choice:
                assert best * (1 - 1e-9) <= found.seconds <= found.bound / (1 - gap) * (1 + 1e-5) + 1e-12
                assert model.held(found.choice) <= memory * (1 + 1e-6)


@pytest.mark.parametrize("other", [True, False])
def test_what_is_dearer_stays_where_nobody_else_pays_what_it_has_in_common(other: bool):
    # One way takes less, and a latency that the other value shares if it takes its first way.
    pairs: dict[tuple[int, int], float] = {(0, 0): 1.0, (1, 0): 1.2}
    together = {(0, 0): ("data",)}
    values = [Value(0, (0, 1), (Reader(2, (0,)),), pairs, (), {}, {}, {}, (), together=together)]
    second = {(0, 0): 1.0, (1, 0): 2.0 if other else 0.9}
    values.append(Value(1, (0, 1), (Reader(2, (0,)),), second, (), {}, {}, {}, (), together=together))
    free = (0.0, 0.0)
    picks = Pick("one", free, free, free), Pick("other", free, free, free), Pick("both", (0.0,), (0.0,), (0.0,))
    model = Model(picks, tuple(values), together={"data": 0.5})
    assert least(undominated(model)) == least(model) == pytest.approx(2.5 if other else 2.1)
    assert solve(undominated(model), gap=EXACT).seconds == pytest.approx(least(model))


def slow_layers() -> Model:
    """Stacked layers whose parameters are gathered for longer than layers compute."""
    problem = problem_of(block(2), abstract(data=2), grad=True)
    slow = replace(problem.machine.inside, bandwidth=Figure(2e10, "slow"))
    return modelled(replace(problem, machine=replace(problem.machine, inside=slow))).model


def invented(seed: int) -> Model:
    """Numbers of all kinds, whatever they stand for."""
    chance = Random(seed)

    def numbers(count: int) -> tuple[float, ...]:
        return tuple(chance.randint(1, 9) / 10 for _ in range(count))

    def value(maker: int) -> Value:
        readers = tuple(Reader(pick, (0, 1, 1), chance.random() < 0.7) for pick in range(maker + 1, 4))
        pairs = [(have, read) for have in (0, 1) for read in (0, 1)]
        return Value(
            maker,
            (0, 0, 1),
            readers,
            dict(zip(pairs, numbers(4), strict=True)),
            numbers(2),
            {pair: (chance.randrange(2),) for pair in pairs[1:]},
            {pair: numbers(2) for pair in pairs[:2]},
            {pair: chance.randrange(2) for pair in pairs[1:]},
            numbers(2),
            {pair: ((0, *numbers(1)),) for pair in pairs[1:]},
            {pair: tuple(chance.sample("ab", chance.randint(0, 2))) for pair in pairs},
        )

    picks = tuple(Pick(str(at), numbers(3), numbers(3), numbers(3), ((0, numbers(3), 0.5),)) for at in range(4))
    return Model(picks, tuple(map(value, range(3))), 0.0, dict(zip("ab", numbers(2), strict=True)))


MADE = [slow_layers, lambda: drawn_model(1), *(partial(invented, seed) for seed in range(3))]


@pytest.mark.parametrize("make", MADE)
def test_the_program_says_of_any_choice_what_the_model_says(make: Any):
    model, chance, seen = make(), Random(0), 0
    roomy = program_of(model, 1e18)
    for _ in range(4000):
        choice = tuple(chance.randrange(len(pick.seconds)) for pick in model.picks)
        if (price := model.price(choice)) == math.inf:
            continue
        held = model.held(choice)
        assert price_of(roomy, choice) == pytest.approx(price, rel=1e-5)
        assert price_of(program_of(model, held * (1 + 1e-4) + 1e-6), choice) == pytest.approx(price, rel=1e-5)
        assert not held or price_of(program_of(model, held * (1 - 1e-4)), choice) == math.inf
        if (seen := seen + 1) == 6:
            break
    assert seen == 6


def price_of(program: Program, choice: tuple[int, ...]) -> float:
    """Seconds of a choice by the program: infinite where it does not fit."""
    most = np.array(program.rows.most)
    for own, at in zip(program.options, choice, strict=True):
        most[[each for each in own if each != own[at]]] = 0.0
    return program.scale * highs.run(program.rows, most=most, limit=math.inf).price


@pytest.mark.parametrize("share", [0.5, math.inf])
def test_whatever_rows_are_said_to_cost_no_choice_takes_less_than_follows_from_it(share: float):
    chance, opened = np.random.default_rng(0), 0
    for number in (1, 3, 5, 8) if thoroughly() else (3, 8):
        model = drawn_model(number)
        held = [model.held(each) for each in choices(model) if model.price(each) < math.inf]
        memory = min(held) + share * (max(held) - min(held)) if share < 1 else math.inf
        rows, options, scale = (program := program_of(model, memory)).rows, program.options, program.scale
        exact = highs.run(rows, most=np.array(rows.most), limit=math.inf).prices
        opened += int(np.isinf(rows.upper).sum())
        for size in (0.0, 1e-4, 1e-3, 1e-2, 0.1):
            bound, more = proved(rows, exact + chance.normal(0.0, size, len(exact)))
            assert math.isfinite(bound) and (size > 1e-3 or bound > 0.5 * least(model) / scale)
            for choice in choices(model):
                used = [own[at] for own, at in zip(options, choice, strict=True)]
                if model.held(choice) <= memory:
                    assert bound + max(0.0, *more[used]) <= model.price(choice) / scale * (1 + 1e-9)
    assert opened


# At 0.6 a choice holds as much as there is, to the last digit, which depends on how Python adds up.
@pytest.mark.parametrize("share", [0.9, 0.61])
def test_what_is_left_out_changes_no_optimum(monkeypatch: pytest.MonkeyPatch, share: float):
    model = undominated(slow_layers())
    memory = share * model.held(solve(model, gap=EXACT).choice)
    monkeypatch.setattr(solving, "_FIRST", 1e-4)
    found = solve(model, memory, gap=EXACT)
    monkeypatch.setattr(solving, "_FIRST", 1e9)
    whole = solve(model, memory, gap=EXACT)
    assert found.seconds == pytest.approx(whole.seconds, rel=2 * EXACT)
    assert found.bound <= whole.seconds * (1 + 1e-9) and whole.bound <= found.seconds * (1 + 1e-9)


def test_where_the_time_is_over_the_nearest_choice_and_what_is_proved_are_given(monkeypatch: pytest.MonkeyPatch):
    model = model_of(mlp(64, 128, 256), True, data=2)
    assert solve(model, limit=0.0) == Solution((), math.inf, 0.0)
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(solving, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    found = solve(model, limit=9.0)
    assert found.choice and 0.5 * least(model) < found.bound <= least(model) <= found.seconds


def hard() -> Rows:
    """Sums that no choice meets exactly, which takes longer to find out than anybody waits; what misses is paid."""
    rows, chance = Rows(), Random(0)
    own = [rows.variable(0.0, is_integral=True) for _ in range(50)]
    for _ in range(6):
        factors = [float(chance.randrange(100)) for _ in own]
        over, under = rows.variable(1.0), rows.variable(1.0)
        rows.most[over] = rows.most[under] = 1e4
        rows.amounts += [over, under]
        half = sum(factors) // 2
        rows.row([*zip(own, factors, strict=True), (over, -1.0), (under, 1.0)], half, half)
    return rows


def test_the_solver_ends_when_its_time_is_over():
    rows = hard()
    found = highs.run(rows, most=rows.most, is_integral=True, limit=0.2)
    assert len(found.values) and found.bound < found.price and not found.is_interrupted


def test_an_interrupt_ends_the_solver_with_what_it_has(monkeypatch: pytest.MonkeyPatch):
    highspy = pytest.importorskip("highspy")
    rows, looks, wait = hard(), iter(range(1000)), highspy.Highs.wait

    def interrupted(solver: Any, timeout: float) -> Any:
        # A signal may be lost where the interpreter runs what collects garbage; this one comes at the fourth look.
        if next(looks) == 3:
            raise KeyboardInterrupt
        return wait(solver, timeout)

    monkeypatch.setattr(highspy.Highs, "wait", interrupted)
    found = highs.run(rows, most=rows.most, is_integral=True, limit=60.0)
    assert found.is_interrupted and len(found.values) and found.bound < found.price


def test_a_missing_solver_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(highs, "is_installed", lambda: False)
    with pytest.raises(PlanError, match=r'"milp"\) needs the solver HiGHS, which is not installed') as error:
        solve(model_of(mlp(8, 8, 8), data=2))
    assert "pip install 'tapestry-jax[search]'" in str(error.value)
