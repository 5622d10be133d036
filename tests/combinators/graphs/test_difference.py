"""What is said of two graphs whose loops differ."""

from __future__ import annotations

from typing import Any

import pytest

import combinators as tp
from combinators import TensorType
from combinators.graphs.difference import first_difference

X = TensorType({"i": 3})


@pytest.mark.parametrize(
    "loop",
    [
        lambda turns: tp.iterate(lambda x: x / 2, turns),
        lambda turns: lambda x: tp.iterate(lambda x: x / 2, until=tp.unchanged(), at_most=turns)(x).state,
    ],
    ids=["counted", "until"],
)
def test_difference_says_how_often_loops_turn(loop: Any) -> None:
    mine, theirs = tp.trace(loop(4), X), tp.trace(loop(5), X)
    told = ["`iterate` turns another number of times", "4, expected 5"]
    assert mine.key != theirs.key and first_difference(mine, theirs, ("mine", "theirs")) == told
