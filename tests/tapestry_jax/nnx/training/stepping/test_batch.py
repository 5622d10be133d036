"""What is wrong with a batch, told of its arrays and of the graph of the loss."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.training.stepping.batch import faults_of

TOKENS = np.arange(8, dtype=np.int32).reshape(2, 4) % 5
ENCODED = tp.TensorType({"batch": 2, "seq": 4}, jnp.int32)


def _ours(loss=tp.nnx.cross_entropy):
    model = tp.nnx.Sequential(
        tp.nnx.Embed(5, 3, rngs=nnx.Rngs(0)), tp.nnx.Linear(3, 6, dims=("embed", "classes"), rngs=nnx.Rngs(0))
    )
    return tp.trace(lambda model, tokens, labels: loss(model(tokens), labels), model, ENCODED, ENCODED)


def _flax():
    model = nnx.Sequential(nnx.Embed(5, 3, rngs=nnx.Rngs(0)), nnx.Linear(3, 6, rngs=nnx.Rngs(0)))

    def loss(model, tokens, labels):
        return optax.softmax_cross_entropy_with_integer_labels(model(tokens), labels).mean()

    return tp.lift(loss, model, TOKENS, TOKENS)


@pytest.mark.parametrize("made", [_ours, _flax])
def test_numbers_that_a_table_has_not_are_told(made):
    graph = made()
    assert faults_of(graph, [TOKENS, TOKENS]) == []
    (tokens,) = faults_of(graph, [np.where(TOKENS == 3, 7, TOKENS), TOKENS])
    assert tokens.startswith("`tokens` of the batch holds 7, and `") and tokens.endswith("` has entries from 0 to 4")
    (labels,) = faults_of(graph, [TOKENS, np.where(TOKENS == 3, 6, TOKENS)])
    assert labels.startswith("`labels` of the batch holds 6, and `") and labels.endswith("` has entries from 0 to 5")
    assert faults_of(graph, [TOKENS, np.where(TOKENS == 3, 5, TOKENS)]) == []


def test_labels_below_0_are_told_and_tokens_that_count_from_the_end_are_not():
    graph = _ours()
    assert faults_of(graph, [TOKENS - 5, TOKENS]) == []
    (labels,) = faults_of(graph, [TOKENS, np.where(TOKENS == 3, -1, TOKENS)])
    assert labels.startswith("`labels` of the batch holds -1, and `") and labels.endswith("` has entries from 0 to 5")


def test_numbers_that_do_not_count_are_not_told():
    graph = _ours(tp.nnx.cross_entropy_with(ignore_index=-100))
    assert faults_of(graph, [TOKENS, np.where(TOKENS == 3, -100, TOKENS)]) == []
    assert len(faults_of(graph, [TOKENS, np.where(TOKENS == 3, -99, TOKENS)])) == 1


def test_numbers_that_a_lookup_clips_are_not_told():
    graph = tp.lift(lambda table, at: jnp.take(table, at, axis=0, mode="clip").sum(), jnp.ones((5, 2)), TOKENS)
    assert faults_of(graph, [TOKENS + 9]) == []


def test_what_is_not_finite_is_told_by_its_place():
    graph = tp.lift(lambda w, x, y: ((x @ w - y) ** 2).mean(), jnp.ones((4, 2)), jnp.ones((3, 4)), jnp.ones((3, 2)))
    x, y = np.ones((3, 4), np.float32), np.ones((3, 2), np.float32)
    assert faults_of(graph, [x, y]) == []
    x[2, 1], y[0, 0] = np.inf, np.nan
    assert faults_of(graph, [x, y]) == ["`x` of the batch is inf at [2, 1]", "`y` of the batch is nan at [0, 0]"]
