"""Histograms, judgements of classes and of probabilities, against NumPy and SciPy."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from combinators import aggregators
from combinators.aggregators.grid import uniform
from combinators.errors import GraphError
from tests.simulated.sampled import in_numpy

RNG = np.random.default_rng(1)
INF = np.inf


def run(aggregator, *xs):
    """One compilation is less work than one for each operation."""
    return in_numpy(aggregator.run)(*xs)


def _around(edges, dtype):
    """The edges as a dtype has them, and the numbers beside them."""
    at = np.asarray(edges, dtype)
    found = np.concatenate([np.nextafter(at, dtype(-INF)), at, np.nextafter(at, dtype(INF))])
    # XLA takes subnormal numbers for 0.
    return np.where(np.abs(found) < np.finfo(dtype).tiny, dtype(0), found)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.1, 0.7), (-4.0, 4.0), (-3.3, 1e4), (1e8, 1e8 + 100), (-1e-3, 2e-3)])
@pytest.mark.parametrize("bins", [1, 7, 256])
def test_histogram_of_numbers_at_the_edges_is_that_of_numpy(bins, ends):
    edges = np.linspace(*ends, bins + 1)
    x = np.concatenate([_around(edges, np.float32), RNG.uniform(*ends, 500).astype(np.float32)])
    result = run(aggregators.Histogram(bins, ends), x)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(result["counts"], np.histogram(wide, bins, ends)[0])
    assert (result["underflow"], result["overflow"]) == ((wide < ends[0]).sum(), (wide > ends[1]).sum())


@pytest.mark.parametrize(("ends", "looks"), [((-4.0, 4.0), 0), ((0.0, 256.0), 0), ((-4.0, 4.1), 1)])
def test_bins_of_multiples_of_a_power_of_two_are_not_looked_up(ends, looks):
    places = uniform("test", 256, *ends).places
    assert str(jax.make_jaxpr(places)(np.ones(4, np.float32))).count(" gather[") == looks


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8, np.bool_])
def test_histogram_takes_every_real_dtype(dtype):
    x = RNG.integers(0, 2 if dtype == np.bool_ else 9, 60).astype(dtype)
    edges = (0.5, 1, 2.25, 7)
    result = run(aggregators.Histogram(edges), x)
    np.testing.assert_array_equal(result["counts"], np.histogram(x.astype(np.float64), edges)[0])
    assert result["underflow"] + result["overflow"] + result["counts"].sum() == 60


def test_histogram_loses_nothing():
    x = np.array([np.nan, -INF, INF, -1, 0, 0.5, 1, 2, np.nan], np.float32)
    result = run(aggregators.Histogram(2, (0.0, 1.0)), x)
    assert jax.tree.map(np.ndarray.tolist, jax.device_get(result)) == {
        "counts": [1, 2],
        "underflow": 2,
        "overflow": 2,
        "nan": 2,
    }


@pytest.mark.parametrize("edges", [(0.0, 0.5, 3.0, 3.5), jnp.array([0.0, 0.5, 3.0]), tuple(np.geomspace(0.01, 5, 700))])
def test_histogram_between_given_edges_is_that_of_numpy(edges):
    x = np.concatenate([_around(edges, np.float32), RNG.gamma(1.0, size=300).astype(np.float32)])
    result = run(aggregators.Histogram(edges), x)
    np.testing.assert_array_equal(result["counts"], np.histogram(x.astype(np.float64), edges)[0])


def test_histogram_of_weights_adds_them_accurately_and_has_their_gradient():
    n = 200_000
    x, w = RNG.uniform(0, 1, n).astype(np.float32), RNG.uniform(0, 1, n).astype(np.float32)
    weighted = jax.jit(lambda w: aggregators.Histogram(4, (0.0, 1.0)).run(x, w)["counts"])
    want = np.histogram(x.astype(np.float64), 4, (0, 1), weights=w.astype(np.float64))[0]
    np.testing.assert_allclose(weighted(w), want, rtol=2e-6)
    gradient = jax.jit(jax.grad(lambda w: weighted(w) @ jnp.arange(4.0)))(w)
    np.testing.assert_array_equal(gradient, np.floor(x * 4))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((5,), "a number of bins has no edges without a range"),
        ((0, (0.0, 1.0)), "there is no grid of these bins"),
        ((3, (1.0, 1.0)), "there is no grid of these bins"),
        ((3, (0.0, INF)), "there is no grid of these bins"),
        (((1.0,),), "these are no edges of bins"),
        (((0.0, 2.0, 1.0),), "these are no edges of bins"),
    ],
)
def test_bins_that_do_not_exist_are_an_error(arguments, text):
    with pytest.raises(GraphError, match=text):
        aggregators.Histogram(*arguments)


LABELS = np.array([0, 1, 2, 2, 1, 0, 2, 5, -1, 1], np.int32)
GUESSES = np.array([0, 2, 2, 1, 1, 0, 2, 0, 1, 7], np.int32)
KNOWN = [(t, p) for t, p in zip(LABELS, GUESSES, strict=True) if 0 <= t < 3 and 0 <= p < 3]


def test_confusion_matrix_counts_pairs():
    want = np.zeros((3, 3), int)
    for label, guess in KNOWN:
        want[label, guess] += 1
    np.testing.assert_array_equal(run(aggregators.ConfusionMatrix(3), LABELS, GUESSES), want)


@pytest.mark.parametrize("average", [None, "macro", "micro", "weighted"])
def test_scores_follow_their_definitions(average):
    # The fourth class never occurs: all its scores are 0.
    hit = np.array([sum(t == p == c for t, p in KNOWN) for c in range(4)], float)
    guessed = np.array([sum(p == c for _, p in KNOWN) for c in range(4)], float)
    labelled = np.array([sum(t == c for t, _ in KNOWN) for c in range(4)], float)

    def averaged(above, below):
        if average == "micro":
            return above.sum() / below.sum()
        each = above / np.where(below == 0, 1, below)
        return {None: each, "macro": each.mean(), "weighted": each @ labelled / labelled.sum()}[average]

    known = np.array(KNOWN, np.int32).T
    for make, above, below in (
        (aggregators.Precision, hit, guessed),
        (aggregators.Recall, hit, labelled),
        (aggregators.F1, 2 * hit, guessed + labelled),
    ):
        np.testing.assert_allclose(run(make(4, average), *known), averaged(above, below), rtol=1e-6)


def test_accuracy_is_the_share_of_hits():
    assert run(aggregators.Accuracy(), LABELS, GUESSES) == np.float32((LABELS == GUESSES).mean())
    weights = np.float32([1, 2, 3, 0, 0.5, -1, 1, 1, 1, 1])
    want = np.average(LABELS == GUESSES, weights=np.maximum(weights, 0))
    np.testing.assert_allclose(run(aggregators.Accuracy(), LABELS, GUESSES, weights), want, rtol=1e-6)


def test_area_is_the_statistic_of_mann_and_whitney():
    labels, scores = RNG.integers(0, 2, 300), RNG.random(300).astype(np.float32)
    scores = np.where(labels, np.sqrt(scores), scores).astype(np.float32)
    sides = labels.sum() * (1 - labels).sum()
    for bins in (4, 1 << 16):
        binned = np.floor(scores * bins)
        want = scipy.stats.mannwhitneyu(binned[labels == 1], binned[labels == 0]).statistic / sides
        np.testing.assert_allclose(run(aggregators.AUC(bins), labels, scores), want, rtol=1e-5)


def test_area_without_negative_elements_is_unknown():
    assert np.isnan(run(aggregators.AUC(), np.ones(3, np.int32), np.float32([0.1, 0.2, 0.3])))


def test_calibration_error_is_the_mean_gap_of_bins():
    outcomes, chances = RNG.integers(0, 2, 200), RNG.random(200).astype(np.float32)
    result = run(aggregators.CalibrationError(10), outcomes, chances)
    bins = np.minimum(chances * 10, 9).astype(int)
    gaps = [abs(outcomes[bins == b].mean() - chances[bins == b].mean()) for b in range(10)]
    counts = np.bincount(bins, minlength=10)
    np.testing.assert_allclose(result["error"], np.average(gaps, weights=counts), rtol=1e-5)
    np.testing.assert_allclose(result["maximum"], max(gaps), rtol=1e-5)
    np.testing.assert_array_equal(result["weight"], counts)


def test_calibration_of_nothing_is_unknown_with_gradient_zero():
    error = jax.jit(lambda x: aggregators.CalibrationError(3).run(np.zeros(2, np.int32), x)["error"])
    outside = jnp.asarray([-1.0, jnp.nan])
    assert np.isnan(error(outside))
    np.testing.assert_array_equal(jax.jit(jax.grad(error))(outside), [0, 0])


@pytest.mark.parametrize("make", [aggregators.ConfusionMatrix, aggregators.Precision])
def test_classes_that_do_not_exist_are_an_error(make):
    with pytest.raises(GraphError, match=r"(?s)there are no classes.*got       0"):
        make(0)
    with pytest.raises(GraphError, match=r"(?s)numbers of classes.*got       float32"):
        run(make(2), np.zeros(3, np.float32), np.zeros(3, np.int32))


def test_averages_that_do_not_exist_are_an_error():
    with pytest.raises(GraphError, match=r"(?s)F1: unknown average.*got       'mean'"):
        aggregators.F1(2, "mean")  # pyright: ignore[reportArgumentType]


def test_binned_states_merge_by_addition():
    outcomes, chances = RNG.integers(0, 2, 50), RNG.random(50).astype(np.float32)
    aggregator = aggregators.CalibrationError(4) & aggregators.AUC(8)

    def in_pieces(outcomes, chances):
        pieces = [aggregator.lift_many(outcomes[a:b], chances[a:b]) for a, b in itertools.pairwise((0, 0, 20, 50))]
        return aggregator.present(aggregator.monoid.fold(pieces))

    got = in_numpy(in_pieces)(outcomes, chances)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, run(aggregator, outcomes, chances))
