"""Garbage is looked for less often while a search runs, and as before when it ends."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tapestry_jax.searching.answering.collected import OLDER, SELDOM, seldom_collected


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    gc.disable()  # What the other tests of a process made need not be looked through here.
    yield
    gc.enable()
    gc.set_threshold(*before)


def test_garbage_is_looked_for_less_often_inside_and_as_before_after_an_error():
    gc.set_threshold(700, 10, 10)

    def interrupted() -> None:
        with seldom_collected():
            assert gc.get_threshold() == (SELDOM, OLDER, 10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("number", [0, 2 * SELDOM])
def test_who_looks_less_often_already_keeps_that(number: int):
    gc.set_threshold(number, 10, 10)
    with seldom_collected():
        assert gc.get_threshold()[0] == number
    assert gc.get_threshold()[0] == number
