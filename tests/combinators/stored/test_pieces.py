"""Kernels of every kind, as an earlier layout of the files stored them: they are read, and are what they were."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import combinators as tp
from combinators.stored.codec import decode
from tests.combinators.stored_pieces import pieces

STORED = json.loads((Path(__file__).parents[1] / "data" / "pieces_2.json").read_text())


def test_every_piece_is_read_and_is_the_one_that_is_made_today():
    today = pieces()
    assert sorted(STORED["pieces"]) == sorted(today), (
        "what is new is stored, too: python -m tests.combinators.stored_pieces > tests/combinators/data/pieces_2.json, "
        "which may add to the file and change nothing"
    )
    assert [name for name, text in STORED["pieces"].items() if decode(text, name) != today[name]] == []


def test_every_graph_is_read_and_keeps_its_key_by_which_plans_name_it():
    read = {name: tp.Graph.from_json(text) for name, text in STORED["graphs"].items()}
    assert {name: graph.key for name, graph in read.items()} == STORED["keys"]


def test_stored_programs_run():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 3), (3, 2)))
    leaves = tp.Graph.from_json(STORED["graphs"]["leaves"])(jnp.asarray(x), jnp.asarray(w))
    z = np.asarray(jax.nn.softmax(np.tanh(x) + 2 * x - x / 3))
    np.testing.assert_allclose(leaves["product"], z @ w, rtol=1e-5)
    np.testing.assert_allclose(leaves["reduced"], z @ w, rtol=1e-5)
    np.testing.assert_array_equal(leaves["sliced"], x[1:5])
    np.testing.assert_array_equal(leaves["places"], np.arange(6))
    labels = np.array([0, 0, 2, 2, 2, 1], np.int32)
    folds = tp.Graph.from_json(STORED["graphs"]["folds"])(jnp.asarray(x), jnp.asarray(labels), jnp.asarray(labels > 0))
    sums = np.stack([x[labels == label].sum(0) for label in range(3)], 1)
    np.testing.assert_allclose(folds["by key"], sums, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(folds["masked"], x[labels > 0].max(0))
    layers = rng.standard_normal((2, 3, 3)).astype(np.float32)
    loops = tp.Graph.from_json(STORED["graphs"]["loops"])(jnp.asarray(x), jnp.asarray(layers))
    np.testing.assert_allclose(loops["layers"], np.tanh(np.tanh(x @ layers[0]) @ layers[1]), rtol=1e-4, atol=1e-5)
