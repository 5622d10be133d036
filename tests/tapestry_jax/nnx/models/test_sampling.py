"""Sampling: what is drawn from is what NumPy says, as often as it says, however the vocabulary is cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.nnx.models import Sampling

ROWS, VOCAB = 4096, 12
LOGITS = np.float32(np.random.default_rng(0).normal(size=VOCAB)).round(1)  # with equal ones
TYPES = tp.TensorType({"batch": ROWS, "vocab": VOCAB}), tp.TensorType({"words": 2}, jnp.uint32)
CASES: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0},
    "hot": {"temperature": 2.0},
    "top k": {"temperature": 1.0, "top_k": 5},
    "top p": {"temperature": 1.0, "top_p": 0.7},
    "both": {"temperature": 0.7, "top_k": 8, "top_p": 0.8},
    "all": {"temperature": 1.0, "top_k": 99, "top_p": 1.0},
}


def shares(temperature: float, top_k: int | None = None, top_p: float | None = None) -> Any:
    """The probability of every token, by a sort."""
    scores = LOGITS.astype(np.float64) / temperature
    order = np.argsort(-scores, kind="stable")[:top_k]
    found = np.exp(scores[order]) / np.exp(scores[order]).sum()
    if top_p is not None:
        count = int(np.searchsorted(np.cumsum(found), top_p)) + 1
        order, found = order[:count], found[:count] / found[:count].sum()
    spread = np.zeros(VOCAB)
    spread[order] = found
    return spread


def drawn(case: str, entries: Any) -> Any:
    graph = tp.trace(Sampling(**CASES[case]).choose, *TYPES)
    run = graph if entries is None else tp.plan(graph, tp.mesh(data=2, model=4), entries).compile()
    return np.asarray(run(np.broadcast_to(LOGITS, (ROWS, VOCAB)), jax.random.key(1)))


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_drawn_as_often_as_they_should(case: str) -> None:
    assert len(np.unique(LOGITS)) < VOCAB
    tokens, expected = drawn(case, None), shares(**CASES[case])
    counts = np.bincount(tokens, minlength=VOCAB)
    assert set(np.flatnonzero(counts)) == set(np.flatnonzero(expected))
    deviation = np.sqrt(ROWS * expected * (1 - expected))
    assert (np.abs(counts - ROWS * expected) <= 4 * deviation).all()


@pytest.mark.parametrize("case", ["both", pytest.param("top k", marks=pytest.mark.thorough)])
def test_the_same_tokens_are_drawn_where_the_vocabulary_is_cut(case: str) -> None:
    np.testing.assert_array_equal(drawn(case, {"batch": "data", "vocab": "model"}), drawn(case, None))


def test_the_first_of_the_largest_is_taken_where_nothing_is_drawn() -> None:
    logits = np.float32([[0, 3, 3, 1], [5, 5, 5, 5], [-np.inf, -np.inf, -1, -np.inf]])
    types = tp.TensorType({"batch": 3, "vocab": 4}), TYPES[1]
    for options in ({}, {"temperature": 1.0, "top_k": 1}, {"temperature": 1.0, "top_p": 1e-6}):
        found = tp.trace(Sampling(**options).choose, *types)(logits, jax.random.key(0))
        np.testing.assert_array_equal(found, [1, 0, 2])


def test_options_that_mean_nothing_are_told_at_once() -> None:
    with pytest.raises(tp.GraphError) as error:
        Sampling(temperature=-1.0, top_k=0, top_p=1.5)
    assert str(error.value).splitlines() == [
        "tokens cannot be drawn so",
        "  temperature is -1.0, expected a number from 0 on",
        "  top_k is 0, expected at least 1, or None",
        "  top_p is 1.5, expected a share above 0 and up to 1, or None",
        "  Pass other options.",
    ]
