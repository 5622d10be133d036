"""Operands on both sides of where a choice turns."""

from __future__ import annotations

from typing import Any

import pytest

from combinators.choosing.edges import edges

STEPS = range(-3, 5)


def found(chooses: Any) -> list[float]:
    """The steps of the operands, each of which is its step."""
    return [step for (step,) in edges(STEPS, lambda step: [step], lambda arrays: {0: [(chooses(*arrays), 0.0)]})]


@pytest.mark.parametrize("threshold", [-2.75, 0.3, 3.9])
def test_a_choice_turns_between_two_steps_close_to_each_other(threshold: float) -> None:
    low, high = found(lambda step: step > threshold)
    assert low <= threshold < high < low + 0.1


def test_each_turn_is_found() -> None:
    turns = found(lambda step: step > -1.5 and not step > 2.2)
    assert len(turns) == 4 and turns[0] <= -1.5 <= turns[1] and turns[2] <= 2.2 <= turns[3]


def test_of_what_never_turns_there_are_none() -> None:
    assert found(lambda step: True) == []


def test_what_is_not_chosen_at_all_is_another_choice() -> None:
    def chosen(arrays: list[Any]) -> Any:
        return {0: [(1, 0.0)]} if arrays[0] > 1.3 else {}

    low, high = (step for (step,) in edges(STEPS, lambda step: [step], chosen))
    assert low <= 1.3 < high
