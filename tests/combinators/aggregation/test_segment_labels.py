"""Segments whose labels lie outside of the segments, or do not ascend: every element counts where its label says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators import aggregators
from combinators.errors import GraphError
from tests.simulated.sampled import in_numpy

SIZE = 3
X = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], np.float32)
LABELS = {
    "before": [-1, -1, -1, 0, 0, 1, 1, 2],
    "behind": [0, 0, 1, 1, 2, 3, 9, 2**31 - 1],
    "between": [0, 0, -7, 0, 1, 5, 1, 2],
    "everywhere": [-(2**31), 0, 7, 1, 1, -1, 2, 3],
    "descending": [2, 2, 1, 1, 1, 0, 0, -1],
    "none": [-1, -1, 3, 3, 3, 3, 4, 4],
}
# In order, by a sum, by a frame, and by parts of a product.
PIECES = {
    "CompensatedSum": aggregators.CompensatedSum(),
    "First": aggregators.First().map(lambda found: found["value"]),
    "Last": aggregators.Last().map(lambda found: found["value"]),
    "Sum": aggregators.Sum(),
    "Max and Moments": aggregators.Max() & aggregators.Moments(2).map(lambda found: found["mean"]),
}


def each_alone(aggregator, labels):
    found = [aggregator.run(jnp.asarray(X[np.asarray(labels) == group])) for group in range(SIZE)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def agree(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)


@pytest.mark.parametrize("name", PIECES)
def test_every_segment_has_the_result_of_its_elements(name):
    run = in_numpy(PIECES[name].by_segment(None, SIZE).run)
    for labels in LABELS.values():
        agree(run(X, np.asarray(labels, np.int32)), each_alone(PIECES[name], labels))


def test_one_segment_and_no_element():
    run = aggregators.CompensatedSum().by_segment(None, 1).run
    assert run(X[:3], np.array([-1, 0, 1], np.int32)).tolist() == [2.0]
    assert run(X[:0], np.zeros(0, np.int32)).tolist() == [0.0]


@pytest.mark.parametrize(
    "entry",
    [*(pytest.param(entry, marks=pytest.mark.thorough) for entry in (tp.chunks(3), "m")), ("m", tp.chunks(2))],
    ids=["chunks", "mesh", "both"],
)
def test_planned_segments_are_those_of_the_whole(entry):
    first = tp.fold(PIECES["First"].by_segment(None, SIZE), "x, x -> ")
    labels = np.asarray(LABELS["before"], np.int32)
    run = tp.plan(tp.trace(first, X, labels), tp.mesh(m=2), {"x": entry}).compile()
    for kind in LABELS.values():
        agree(run(X, np.asarray(kind, np.int32)), each_alone(PIECES["First"], kind))


def test_labels_wider_than_32_bits_do_not_lose_their_high_bits():
    with jax.enable_x64(True):
        labels = np.array([2**32, 1, 2**32 + 1, -(2**32)], np.int64)
        assert aggregators.Sum().by_key(None, 2).run(X[:4], labels).tolist() == [0.0, 2.0]
        assert aggregators.ConfusionMatrix(2).run(labels, labels).tolist() == [[0, 0], [0, 1]]
        assert aggregators.Sum().by_run().run(X[:2], np.array([0, 2**32], np.int64)) == 2.0
    huge = np.array([2**32 - 1, 2**31, 1], np.uint32)
    assert aggregators.Sum().by_segment(None, 2).run(X[:3], huge).tolist() == [0.0, 4.0]


def test_labels_of_runs_that_are_no_integers_are_refused():
    with pytest.raises(GraphError, match=r"(?s)by_run: the labels are no integers.*got       float32"):
        aggregators.Sum().by_run().run(X[:2], np.array([0.2, 0.7], np.float32))
