"""Two runs differ where they do by more than rounding, which only runs of each tell."""

from __future__ import annotations

import numpy as np

from combinators.declared.compared import CLOSE, differ

NOTHING = [np.zeros(3, np.float32)]
LITTLE = [np.full(3, 4e-8, np.float32)]


def test_what_is_rounded_in_one_way_alone_is_the_same() -> None:
    # The third moment of two cells is exactly zero if both are merged at once.
    turns = [[leaf * sign for leaf in LITTLE] for sign in (1, -1, 2)]
    assert not differ(NOTHING, LITTLE, NOTHING, turns.__getitem__, exact=False, allowed=CLOSE)


def test_what_stays_when_operands_are_moved_is_no_rounding() -> None:
    assert differ(NOTHING, LITTLE, NOTHING, lambda _: LITTLE, exact=False, allowed=CLOSE)


def test_runs_are_made_where_something_differs_alone() -> None:
    def never(_: int) -> list[np.ndarray]:
        raise AssertionError("it is the same")

    assert not differ(LITTLE, LITTLE, LITTLE, never, exact=False)


def test_a_number_that_is_lost_is_no_rounding() -> None:
    lost = [np.array([0, np.nan, 0], np.float32)]
    assert differ(NOTHING, lost, NOTHING, lambda _: lost, exact=False, finite=True)
    assert not differ(NOTHING, lost, NOTHING, lambda _: lost, exact=False)


def test_whole_numbers_are_not_rounded() -> None:
    one, other = [np.arange(8)], [np.arange(8) + (np.arange(8) == 7)]
    assert differ(one, other, one, lambda _: other, exact=True)
    assert not differ(one, other, one, lambda _: other, exact=False), "made of floats, one may fall on the other side"
