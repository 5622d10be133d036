"""An axis says what is read where it does, by sizes that fit."""

from __future__ import annotations

import pytest

from combinators.dependence.reading import read_by
from combinators.dependence.said import sizes_that_say
from combinators.index_space.signature import Signature

AT, SIZES = {"a": (0, 1, 8)}, {"a": 8}


def axis(text):
    return Signature.parse(f"{text} -> ").operands[0].axes[0]


def told(text, read, *beside, **sizes):
    """The sizes, beside those that were known, by which an axis says what another one reads."""
    own = axis(text)
    reading = read_by(axis(read), AT, {"a": 8, "n": 3, "m": 2})
    found = sizes_that_say(own, [own, *map(axis, beside)], AT, SIZES | sizes, reading)
    return [{name: size for name, size in fits.items() if name != "a" and name not in sizes} for fits in found]


@pytest.mark.parametrize(
    ("text", "read", "sizes"),
    [
        ("(a+1)", "(a+1)", [{}]),
        ("(2*a-1)", "(2*a-1)", [{}]),
        ("(a+[k])", "(a+[n])", [{"k": 3}]),
        ("(a+2*[k]-2)", "(a+2*[n]-2)", [{"k": 3}]),
        ("(a-[k]+2)", "(a+[n])", [{"k": 3}]),
        ("(a+[k])", "(a+2*[n])", [{"k": 5}]),
        ("(a+[k]+2*[j])", "(a+[m]+2*[n])", [{"k": 2, "j": 3}, {"k": 4, "j": 2}]),
    ],
)
def test_sizes_that_fit(text, read, sizes):
    assert told(text, read) == sizes


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("(a+1)", "a"),
        ("(-a+7)", "a"),
        ("(a+[k])", "a"),
        ("(a+[k]-1)", "(a+[n])"),
        ("(2*a)", "a"),
        ("(a+2*[k])", "(a+[m])"),
    ],
)
def test_what_is_false_has_no_sizes(text, read):
    assert told(text, read) == []


def test_known_sizes_count():
    assert told("(a+[k])", "(a+[n])", k=3) == [{}]
    assert told("(a+[k])", "(a+[n])", k=2) == told("(a+[k])", "(a+[n])", k=4) == []
    assert told("(a+[k])", "a", k=1) == [{}]


def test_one_tensor_that_comes_in_twice_is_read_by_both():
    both = read_by(axis("(a+[m])"), AT, SIZES | {"m": 2})
    first, second = axis("(a+1)"), axis("(a)")
    assert list(sizes_that_say(first, [first, second], AT, SIZES, both)) == [SIZES]
    assert list(sizes_that_say(first, [first], AT, SIZES, both)) == []
    other = axis("(a+3)")
    assert list(sizes_that_say(first, [first, other], AT, SIZES, both)) == []


def test_nothing_says_what_cannot_be_told():
    assert list(sizes_that_say(axis("(a+1)"), [], AT, SIZES, "a loop")) == []
    assert list(sizes_that_say(axis("(a+[k])"), [], AT, SIZES, frozenset())) == []
