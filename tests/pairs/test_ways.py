"""Samples of the derivatives that `python -m tests.pairs --way` asks, and faults in them are found."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import tapestry_jax as tp
from combinators.equations import scanned
from tests.pairs import ways
from tests.pairs.pair import check, draw_pair
from tests.pairs.programs import Program
from tests.pairs.test_pairs import sample
from tests.pairs.ways import WAYS, compare_by


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def verdicts(seed: str, plans: int, way: str = "second", edition: int = 3) -> list[str]:
    pairs = draw_pair(seed, plans, edition=edition)
    return [
        check(program, placing, f"{seed}/{at}", by=compare_by(way))[1].verdict
        for at, (program, placing) in enumerate(pairs)
    ]


@pytest.mark.parametrize("number", sample(3, 20))
def test_second_derivatives_are_those_of_the_program(number: int) -> None:
    assert {*verdicts(f"s3/{number}", 2)} <= {"equal", "trivial", "refused"}


@pytest.mark.parametrize("number", sample(2, 20))
@pytest.mark.parametrize("way", [way for way in WAYS if way != "second"])
def test_other_derivatives_are_those_of_the_program(way: str, number: int) -> None:
    assert {*verdicts(f"w1/{number}", 1, way)} <= {"equal", "trivial", "refused"}


@pytest.mark.parametrize("way", WAYS)
def test_a_planted_fault_is_found_in_each_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ways.in_true_sizes

    def wrong(program: Program, plan: tp.Plan) -> Any:
        run = right(program, plan)
        return lambda *args: [leaf + 0.01 * leaf**2 if leaf.dtype.kind == "f" else leaf for leaf in run(*args)]

    assert verdicts("w1/2", 1, way) == ["equal"]
    monkeypatch.setattr(ways, "in_true_sizes", wrong)
    assert verdicts("w1/2", 1, way) == ["gradient"]


def test_a_loop_that_ends_in_a_sum_reads_no_counter_of_the_loop_around_it() -> None:
    # Where a second derivative runs it that loop is gone.
    assert verdicts("s1/17", 1, edition=2) == ["equal"]


@pytest.mark.skipif(jax.__version_info__ >= (0, 12), reason="its loops keep derivatives by themselves")
def test_a_loop_that_forgets_what_somebody_wrote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts("s3/19", 1) == ["equal"]
    monkeypatch.setattr(scanned, "_JAX_KEEPS", True)
    jax.clear_caches()
    assert verdicts("s3/19", 1) == ["gradient"]
