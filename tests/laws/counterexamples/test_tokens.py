"""Replay tokens from elsewhere: data, whatever they hold."""

from __future__ import annotations

import base64
import json
import random

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from laws.counterexamples.tokens import LONGEST_TOKEN, check_recipe, pack
from laws.errors import TokenError
from tests.damaged import damaged
from tests.mutate_json import mutated, parts

PLUS = tp.Monoid(0.0, jnp.add, commutative=True, name="Plus")
CONTENT = ["monoid.associativity", "f32[]", [["lift", 1.0], ["combine", ["lift", 0.0], ["identity"]], ["identity"]]]


def token(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        None, 3, b"", "", "é", "====", "A" * (LONGEST_TOKEN + 1), token([]), token({"law": 3}), token("[" * 9),
        token(CONTENT)[:40], token(None), token([CONTENT[0], CONTENT[1], {"os": "system"}]),
        token(["\x1b[2J", *CONTENT[1:]]),
        base64.urlsafe_b64encode(b"[" * 9999).decode(),
        base64.urlsafe_b64encode(b'["a", "a", "a\xff"]').decode(),
        base64.urlsafe_b64encode(b"[" + b"9" * 5000 + b"]").decode(),
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_token_is_refused(text):
    with pytest.raises(TokenError, match="this is no replay token") as caught:
        tp.laws.replay(text, PLUS)
    assert isinstance(caught.value, tp.FormatError)


def test_numbers_that_are_not_finite_are_read():
    tp.laws.replay(pack("monoid.associativity", "f32[]", [["lift", float("inf")], ["lift", 1.0], ["identity"]]), PLUS)


def test_edited_tokens_are_replayed_or_refused():
    draws, refused = random.Random(0), 0
    for _ in range(80):
        try:
            tp.laws.replay(token(mutated(CONTENT, draws, parts(CONTENT))), PLUS)
        except tp.FormatError:
            refused += 1
    assert 40 < refused < 80


@pytest.mark.parametrize(
    ("piece", "content", "text"),
    [
        (
            tp.aggregators.Moments(),
            ["aggregator.lift_many", "f32[], f32[]", [[[4.0, 4.0], [0.0, 1.0]]]],
            "expected 5 elements",
        ),
        (PLUS, ["monoid.inverse", "f32[]", [["lift", 1.0]]], "the token does not belong to `Plus`"),
    ],
    ids=["two elements for five", "a law that it does not claim"],
)
def test_tokens_that_stand_for_nothing_are_no_failures_of_the_piece(piece, content, text):
    with pytest.raises(TokenError, match=text):
        tp.laws.replay(token(content), piece)


@pytest.mark.parametrize(
    ("function", "old", "new", "content"),
    [
        (check_recipe, "len(recipe) != len(law.takes)", "False", [*CONTENT[:2], CONTENT[2] * 2]),
        (check_recipe, "problem is not None", "False", [*CONTENT[:2], [["lift"], ["identity"], ["identity"]]]),
        (tp.laws.replay, "not law.applies(subject)", "True", ["monoid.inverse", "f32[]", [["lift", 1.0]]]),
        (tp.laws.replay, "subject.types == kinds", "True", [CONTENT[0], "f64[]", CONTENT[2]]),
    ],
    ids=["any number of arguments", "any arguments", "any law", "any types"],
)
def test_every_damage_to_the_reader_of_tokens_is_seen(function, old, new, content):
    def is_refused():
        try:
            tp.laws.replay(token(content), PLUS)
        except TokenError:
            return True
        except Exception:  # noqa: BLE001 - whatever a damaged reader lets through
            return False
        return False

    with damaged(function, old, new):
        assert not is_refused()
    assert is_refused()
