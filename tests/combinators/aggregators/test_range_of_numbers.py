"""Aggregates over the whole range of numbers, against float64 and integers of any size: right, infinite or NaN."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry_jax as tp
from combinators import aggregators
from combinators.monoids import moments
from tests.damaged import damaged

COUNT = 48
EPS, TINY, GREATEST = (
    float(end) for end in (np.finfo(np.float32).eps, np.finfo(np.float32).tiny, np.finfo(np.float32).max)
)
quickly = settings(max_examples=60, deadline=None, derandomize=True, database=None)

# Where data lie and how far they spread, far from what is usual as often as not.
SCALES = st.sampled_from([1e-37, 1e-25, 1e-19, 1e-12, 1e-8, 1.0, 1e6, 1e9, 1e12, 1e18, 1e25, 1e37])
OFFSETS = st.sampled_from([0.0, 0.0, 1.0, -1e3, 1e6, 1e9])
SEEDS = st.integers(0, 2**31)


def floats(seed, scale, offset, columns=None):
    """Numbers around `offset * scale`, spread by about `scale`."""
    shape = (COUNT,) if columns is None else (COUNT, columns)
    base = np.random.default_rng(seed).normal(size=shape)
    with np.errstate(over="ignore"):
        drawn = ((base + offset) * scale).astype(np.float32)
    return np.clip(drawn, -GREATEST, GREATEST)


def integers(seed, dtype, count=COUNT):
    """Integers near both ends of a dtype, near 0 and anywhere."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    ends = np.array([info.min, info.max, 0, info.max - 1], object)
    chosen = rng.choice(ends[: rng.integers(1, 5)], count)
    anywhere = rng.integers(info.min, info.max, count, endpoint=True, dtype=dtype)
    return np.where(rng.random(count) < rng.choice([0.0, 0.5]), anywhere, chosen).astype(dtype)


def exact_mean(xs, weights=None):
    weights = [1] * len(xs) if weights is None else [max(int(w), 0) for w in weights]
    return sum(int(x) * w for x, w in zip(xs, weights, strict=True)) / sum(weights) if sum(weights) else np.nan


def is_near(got, want, size):
    """Up to a few roundings of the largest element."""
    return np.isnan(want) if np.isnan(got) else abs(float(got) - want) <= 8 * EPS * max(size, abs(want))


# The narrowest that has a sign, and the widest that has none.
KINDS = [np.int8, np.uint32]
BETWEEN = [np.int16, np.int32, np.uint8, np.uint16]
MEAN = aggregators.Mean()
run_mean, run_weighted = jax.jit(MEAN.run), jax.jit(lambda xs, weights: MEAN.run(xs, weights))
run_masked, run_keyed = jax.jit(MEAN.masked().run), jax.jit(MEAN.by_key(None, 2).run)
run_segments = jax.jit(MEAN.by_segment(None, 2).run)
run_scanned = jax.jit(lambda xs: tp.scan(MEAN)(xs))


@pytest.mark.parametrize("dtype", [*KINDS, *(pytest.param(dtype, marks=pytest.mark.thorough) for dtype in BETWEEN)])
@settings(quickly, max_examples=15)
@given(seed=SEEDS)
def test_mean_of_integers_is_exact_whatever_their_total(dtype, seed):
    xs, half = integers(seed, dtype), np.arange(COUNT) % 2
    weights = integers(seed + 1, np.int32)
    size = float(max(abs(int(x)) for x in xs))
    assert is_near(run_mean(xs), exact_mean(xs), size)
    assert is_near(run_weighted(xs, weights), exact_mean(xs, weights), size)
    assert is_near(run_masked(xs, half), exact_mean(xs[half == 1]), size)
    assert is_near(run_scanned(xs)[-1], exact_mean(xs), size)
    for run, labels in ((run_keyed, half), (run_segments, np.sort(half))):
        found = run(xs, labels)
        assert all(is_near(found[key], exact_mean(xs[labels == key]), size) for key in (0, 1))


def test_mean_of_many_small_integers_is_exact():
    assert is_near(run_mean(np.full(100_000, 30_000, np.int16)), 30_000.0, 30_000.0)
    with jax.enable_x64(True):
        assert MEAN.run(np.full(8, 2**62, np.int64)) == 2.0**62
        assert MEAN.run(np.full(8, 2**64 - 1, np.uint64)) == 2.0**64


@pytest.mark.parametrize("entry", ["m", tp.chunks(3), ("m", tp.chunks(5))], ids=["mesh", "chunks", "both"])
def test_planned_mean_of_integers_is_exact(entry):
    xs = np.full(COUNT, 2**31 - 1, np.int32)
    for arrow in (tp.fold(MEAN, "x -> "), tp.scan(MEAN, "x -> x", "x")):
        found = tp.plan(tp.trace(arrow, xs), tp.mesh(m=4), {"x": entry}).compile()(xs)
        assert np.all(np.asarray(found) == 2.0**31)


run_moments = jax.jit(aggregators.Moments().run)
moments_of_pieces = jax.jit(
    lambda xs: aggregators.Moments().present(
        aggregators.Moments().monoid.merge(*map(aggregators.Moments().lift_many, (xs[:7], xs[7:])))
    )
)


@quickly
@given(seed=SEEDS, scale=SCALES, offset=OFFSETS)
def test_moments_are_right_infinite_or_unknown(seed, scale, offset):
    xs = floats(seed, scale, offset)
    wide = xs.astype(np.float64)
    mean, variance = wide.mean(), wide.var()
    size = float(np.abs(wide).max())
    for run in (run_moments, moments_of_pieces):
        found = {name: float(value) for name, value in run(xs).items()}
        assert abs(found["mean"] - mean) <= 4 * EPS * size + TINY
        if variance * COUNT > GREATEST:
            assert found["variance"] == np.inf
        else:
            # What the mean rounds, twice, and what is flushed to zero.
            slack = 1e-4 * variance + 64 * (EPS * size) ** 2 + TINY
            assert abs(found["variance"] - variance) <= slack
        for name, power in (("skewness", 3), ("kurtosis", 4)):
            if np.isnan(found[name]):
                deviation = np.sqrt(variance)
                lost = deviation <= 2e-6 * abs(mean)
                assert lost or not TINY <= deviation**power <= GREATEST / (100 * COUNT), name
            elif run is run_moments and size < 1e3 * np.sqrt(variance):
                wanted = ((wide - mean) ** power).mean() / variance ** (power / 2) - 3 * (power == 4)
                assert abs(found[name] - wanted) < 0.01, name


run_correlation = jax.jit(aggregators.Correlation().run)
run_covariance = jax.jit(aggregators.Covariance().run)


@quickly
@given(seed=SEEDS, scale=SCALES, offset=OFFSETS)
def test_correlation_and_covariance_are_right_infinite_or_unknown(seed, scale, offset):
    xs = floats(seed, scale, offset, 2)
    xs[:, 1] = xs[:, 1] / 2 + xs[:, 0] / 2
    wide = xs.astype(np.float64)
    covariance = np.cov(wide.T, ddof=0)
    deviations = np.sqrt(np.diagonal(covariance))
    found = np.asarray(run_covariance(xs)["covariance"], np.float64)
    overflows = np.outer(deviations, deviations) * COUNT > GREATEST / 4
    near = np.abs(found - covariance) <= 1e-3 * np.outer(deviations, deviations) + TINY
    assert np.all(near | (overflows & ~np.isfinite(found)))
    correlation = run_correlation(xs)[0, 1]
    if np.isnan(correlation):
        lost = (deviations <= 2 * EPS * np.abs(wide.mean(0))).any()
        squares = deviations**2 * COUNT
        assert lost or not (squares.min() >= 2 * TINY and squares.max() <= GREATEST / 4)
    else:
        assert abs(correlation - np.corrcoef(wide.T)[0, 1]) < 1e-3


def test_correlation_and_skewness_where_they_once_were_unknown():
    spread = np.random.default_rng(0).random((200, 2)).astype(np.float32)
    spread[:, 1] += spread[:, 0]
    far = spread + np.float32(1e6)
    found = run_correlation(far)[0, 1]
    np.testing.assert_allclose(found, np.corrcoef(far.astype(np.float64).T)[0, 1], rtol=1e-4)
    small = spread[:, 0] ** 2 * np.float32(1e-12)
    wanted = aggregators.Moments().reference(small.astype(np.float64))["skewness"]
    np.testing.assert_allclose(run_moments(small)["skewness"], wanted, rtol=1e-4)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_seen_wherever_it_stands(bad):
    # Of long inputs the origin of deviations comes from a sample, in which this element is not.
    xs = np.zeros(2**19, np.float32)
    xs[3000] = bad
    for part in (xs, xs[2990:3010]):
        moments = jax.jit(aggregators.Moments(2).run)(part)
        np.testing.assert_equal(
            [float(moments["mean"]), float(moments["variance"])], [part.mean(dtype=np.float64), np.nan]
        )
        covariance = jax.jit(aggregators.Covariance().run)(xs[:, None])
        np.testing.assert_equal([float(covariance["mean"][0]), float(covariance["covariance"][0, 0])], [bad, np.nan])


def test_numbers_whose_total_overflows_have_a_mean():
    found = run_moments(np.full(COUNT, 3e38, np.float32))
    assert (float(found["mean"]), float(found["variance"])) == (float(np.float32(3e38)), 0.0)
    mixed = run_moments(np.array([3e38, -3e38, 3e38, 3e38] * 12, np.float32))
    np.testing.assert_allclose(mixed["mean"], 1.5e38, rtol=1e-6)
    assert mixed["variance"] == np.inf


def test_a_weight_that_overflows_times_its_element_leaves_the_mean():
    xs, weights = np.array([0.5, 3e38, 1e30], np.float32), np.array([1e30, 1.5, 1.0], np.float32)
    wanted = np.average(xs.astype(np.float64), weights=weights.astype(np.float64))
    np.testing.assert_allclose(aggregators.Moments(2).run(xs, weights)["mean"], wanted, rtol=1e-6)
    np.testing.assert_allclose(aggregators.Covariance().run(xs[:, None], weights)["mean"], [wanted], rtol=1e-6)


WEIGHTS = np.full(4, 2**30, np.int32)
LABELS, SCORES = np.array([0, 1, 0, 1]), np.array([0.1, 0.2, 0.3, 0.4], np.float32)


def test_weights_whose_total_is_no_integer_of_32_bits_are_right_or_unknown():
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)

    def run(aggregator, *xs):
        return jax.jit(aggregator.run)(*xs)

    assert run(MEAN, x, WEIGHTS) == 2.5
    assert run(aggregators.AUC(), LABELS, SCORES, WEIGHTS) == 0.75
    assert run(aggregators.Accuracy(), LABELS, np.array([0, 1, 1, 1]), WEIGHTS) == 0.75
    assert run(aggregators.Precision(2), LABELS, np.array([0, 1, 1, 1]), WEIGHTS).tolist() == [1.0, np.float32(2 / 3)]
    moments = run(aggregators.Moments(2), x, WEIGHTS)
    assert moments["count"] < 0 and np.isnan(moments["mean"]) and np.isnan(moments["variance"])
    covariance = run(aggregators.Covariance(), x[:, None], WEIGHTS)
    assert covariance["count"] < 0 and np.isnan(covariance["covariance"]).all()
    assert np.isnan(run(aggregators.Correlation(), x[:, None], WEIGHTS)).all()
    assert np.isnan(aggregators.LinearRegression().run(x[:, None], x, WEIGHTS)["intercept"])


@settings(quickly, max_examples=30)
@given(seed=SEEDS, scale=st.sampled_from([0.3, 1.0, 3.0]))
def test_scores_outside_of_the_bins_rank_there_or_the_area_is_unknown(seed, scale):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 12)
    # Multiples of 1/16: of scores between the ends every one has a bin of its own.
    scores = (np.round((rng.normal(size=12) * scale + 0.5) * 16) / 16).astype(np.float32)
    with np.errstate(invalid="ignore"):
        pairs = np.sign(scores[labels == 1][:, None] - scores[labels == 0]) / 2 + 0.5
    found = run_area(labels, scores)
    outside = [side & (labels == label) for side in (scores < 0, scores > 1) for label in (0, 1)]
    if not pairs.size or (outside[0].any() and outside[1].any()) or (outside[2].any() and outside[3].any()):
        assert np.isnan(found)
    else:
        np.testing.assert_allclose(found, pairs.mean(), rtol=1e-6)


run_area = jax.jit(aggregators.AUC(17, (-1 / 32, 33 / 32)).run)


def test_unsigned_integers_find_their_bins():
    found = aggregators.Histogram(4, (0.0, 4e9)).run(jnp.asarray([3_500_000_000, 1_000_000_000, 1], jnp.uint32))
    assert found["counts"].tolist() == [1, 1, 0, 1]
    assert (int(found["underflow"]), int(found["overflow"])) == (0, 0)


HUGE = {
    "one sign": np.tile(np.float32([1e38, 1.5e38, 3e38]), 8),
    "both signs by device": np.repeat(np.float32([1e38, -1e38]), 12),
    "far apart": np.repeat(np.float32([3.2e38, -3.2e38, 2e38]), 8),
    "around 0": np.float32(1e20) * np.linspace(-1, 1, 24, dtype=np.float32),
    "tiny": np.float32(1e-36) * np.linspace(1, 2, 24, dtype=np.float32),
    "usual": np.linspace(9, 11, 24, dtype=np.float32),
}
BY_PLAN = {
    "devices": ({"data": 3}, "data"),
    "chunks on devices": ({"data": 2}, ("data", tp.chunks(3))),
}


@pytest.mark.parametrize("plan", ["devices", pytest.param("chunks on devices", marks=pytest.mark.thorough)])
def test_moments_of_huge_values_are_merged_as_they_are_found_at_once(plan):
    sizes, entry = BY_PLAN[plan]
    labels = np.arange(24, dtype=np.int32) // 2 % 3
    program = tp.program(
        lambda x, keys: (
            tp.fold(aggregators.Moments(2), "t c -> c")(x),
            tp.fold(aggregators.Moments(2).by_key(None, 3), "t c, t -> c")(x, keys),
        )
    )
    xs = np.stack(list(HUGE.values()), 1)
    types = tp.TensorType({"t": 24, "c": xs.shape[1]}, jnp.float32), tp.TensorType({"t": 24}, jnp.int32)
    run = tp.plan(tp.trace(program, *types), tp.mesh(**sizes), {"t": entry}).compile()
    alone, keyed = run(xs, labels)
    exact = xs.astype(np.float64)
    for found, rows in (
        (alone, exact),
        *(({k: v[:, key] for k, v in keyed.items()}, exact[labels == key]) for key in range(3)),
    ):
        size = np.abs(rows).max(0)
        assert (np.abs(found["mean"] - rows.mean(0)) <= 8 * EPS * size).all()
        variance = rows.var(0)
        fits = variance * len(rows) < GREATEST
        np.testing.assert_allclose(
            np.where(fits, found["variance"], np.inf), np.where(fits, variance, np.inf), rtol=1e-4, atol=1e-30
        )
        assert (np.asarray(found["variance"])[~fits] == np.inf).all()


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (moments.summarize, "* _unit(mean)", "* 1"),
        (moments.gap_and_first, "mean / 2 - origin / 2", "(mean - origin) / 2"),
        (moments.moved_where_finite, "jnp.isfinite(found)", "True"),
    ],
)
def test_what_overflows_on_the_way_is_seen(function, old, new):
    with damaged(function, old, new), pytest.raises(AssertionError):
        test_moments_of_huge_values_are_merged_as_they_are_found_at_once("devices")
