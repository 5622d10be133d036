"""What the pairs call equal is equal: each way of being different has its verdict."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering import program as lowering
from tests.pairs.contract import verdict
from tests.pairs.pair import check, difference
from tests.pairs.plans import Placing
from tests.pairs.test_found import Written

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ([1.0, 2.001], [1.0, 2.0]),
        ([1.0, NAN], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, NAN]),
        ([1.0, INF], [1.0, NAN]),
        ([1.0, -INF], [1.0, INF]),
        ([[1.0, 2.0]], [1.0, 2.0]),
        (np.float32([1.0, 2.0]), [1.0, 2.0]),
        (np.int32([1, 2]), np.int32([1, 3])),
        ([True, False], [True, True]),
    ],
)
def test_numbers_that_differ_are_different(got, want):
    assert difference(np.asarray(got), np.asarray(want), 1e-7) is not None
    assert difference(np.asarray(want), np.asarray(want), 1e-7) is None


def test_rounding_is_no_difference():
    assert difference(np.array([1.0, 1e9]), np.array([1.0 + 1e-3, 1e9]), 1e-7) is None


@pytest.mark.parametrize("kind", ["wrong", "gradient"])
def test_a_wrong_value_and_a_wrong_gradient_are_told_apart(kind, monkeypatch):
    right = lowering.merge_states

    def merged(*args):
        # A value that is twice the right one; or the right one, through which half of the gradient flows.
        return [2 * x if kind == "wrong" else (x + jax.lax.stop_gradient(x)) / 2 for x in right(*args)]

    monkeypatch.setattr(lowering, "merge_states", merged)
    fold = tp.Reduce(lambda x: jnp.sum(jnp.sin(x), axis=0), "a b -> b", tp.monoids.Sum)
    with jax.enable_x64(True):
        program = Written("verdict", (), run=fold, sizes_of=((("a", 4), ("b", 3)),))
        _, outcome = check(program, Placing({"m": 2}, {"a": ("m",)}), repair=False)
    assert outcome.verdict == kind, outcome


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, "equal"),
        ({"sum": (8, 4, 4)}, "bound"),
        ({"sum": (8, 4, 8)}, "more"),
        ({"sum": (4, 8, 4)}, "less"),
        ({"sum": (8, 4, 8), "max": (4, 8, 4)}, "less"),
    ],
)
def test_verdicts_of_the_contract(found, expected):
    assert verdict(found) == expected
